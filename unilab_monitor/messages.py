"""Messages between the layers of the drawn monitor.

ViewReady    feed thread -> app: the newest picture. Bursts are coalesced: one per turn of the feed,
             whatever number of records came in.
LinesChanged panel -> its row: the number of lines has changed, so heights have to be levelled.
"""

from textual.message import Message

from unilab_monitor.view import View


class ViewReady(Message):
    """A new picture of the job."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view


class LinesChanged(Message):
    """A panel needs another height."""
