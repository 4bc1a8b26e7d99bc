"""What `make docs` makes of the docs, the configuration and the docstrings: see mkdocs.yml."""
