"""What runs left on disk.

Importing its modules takes the standard library and yaml alone, so that a look at a sweep does
not wait for numpy and pandas; they come with the first run that is read.
"""
