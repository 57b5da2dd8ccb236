# SPDX-License-Identifier: Apache-2.0
"""Lines on standard error that become lines of Raven's own log, with their levels and keys."""

import contextlib
import json
import logging
import os
import sys
import threading

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
KNOWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


_about = threading.local()


@contextlib.contextmanager
def about(watch, obj):
    """Names an object in the lines that this thread writes meanwhile."""
    meta = obj.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    name = "/".join(str(part) for part in (meta.get("namespace"), meta.get("name")) if part)
    _about.keys = {"watch": watch, "object": name}
    try:
        yield
    finally:
        _about.keys = {}


class Lines(logging.Formatter):
    """One JSON object a line, with the keys that Raven understands."""

    def format(self, record):
        level = "debug" if record.levelno < logging.INFO else record.levelname.lower()
        level = {"warning": "warn", "critical": "error"}.get(level, level)
        line = {"@level": level, "@message": record.getMessage()}
        line.update(getattr(_about, "keys", {}))
        line.update({key: value for key, value in vars(record).items() if key not in KNOWN})
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up():
    """Leads Python's logging to Raven, at Raven's level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.root.handlers = [handler]
    logging.root.setLevel(LEVELS.get(os.environ.get("RAVEN_LOG_LEVEL", ""), logging.INFO))
