"""Errors that are a user's to mend."""


class UserError(ValueError):
    """A mistake in the user's input.

    Its text is one line: the config key, the value that was given, and what would work. The
    command line prints it without a traceback and exits with code 2.
    """
