"""The sources that Divvy runs and builds beside its own package.

``divvy/share`` has them: in a checkout as links to the top-level folders, in a wheel as copies.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
_SHARE = PACKAGE / "share"
CONFORMANCE = (_SHARE / "conformance").resolve()
"""The conformance suite, a package; Python finds it from the folder around it."""
PLUGIN_IMAGE = _SHARE / "plugin_image"
"""Containerfile and C parts of the agent's image."""
VERIFY_REQUIREMENTS = _SHARE / "requirements" / "verify.txt"
"""The pinned packages in the image that runs the conformance suite."""
AGENT_REQUIREMENTS = _SHARE / "requirements" / "agent.txt"
"""The pinned packages in the agent's image."""
