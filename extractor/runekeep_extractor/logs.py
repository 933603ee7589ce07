"""Configures logging: JSON lines on standard error. Log lines name jobs, tasks and counts, never message content."""

import logging
import sys

import structlog


def configure_logging(level: str) -> None:
    """Configures logging once, at process start. `level` as in `logging`, in lower case."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
