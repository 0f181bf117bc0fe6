"""The data of responses. The names are those of the OpenAPI document."""

from ._models import *  # noqa: F403
