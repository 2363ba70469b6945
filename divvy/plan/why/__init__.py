"""Why a pod waits for what it claims: the scheduler says only that it cannot allocate."""

from divvy.plan.why.explanation import Explanation, explain
from divvy.plan.why.request import Request, requests_of

__all__ = ["Explanation", "Request", "explain", "requests_of"]
