"""StartError: a run that cannot start, with its exit code and one line."""


class StartError(Exception):
    """Nothing was left behind when this is raised."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = int(code)
