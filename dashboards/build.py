"""Writes the dashboards as JSON into the folder given, or beside this file."""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from gateway import gateway
from one_server import one_server
from servers import servers


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    for board in (servers(), one_server(), gateway()):
        built = finished(board.build())
        text = json.dumps(built, cls=JSONEncoder, indent=1, ensure_ascii=False, sort_keys=True)
        (folder / f"{built.uid}.json").write_text(text + "\n", encoding="utf-8")


def finished(board):
    """With ids, which links to a panel hang on, and with the links and annotations in sight."""
    for number, panel in enumerate(board.panels, start=1):
        panel.id_val = number
    for shown in board.links + board.annotations.list_val:
        shown.placement = ""
    return board


if __name__ == "__main__":
    main()
