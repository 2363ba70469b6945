"""Why a pod waits for what it claims: the scheduler says only that it cannot allocate."""

from divvy.plan.why.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
