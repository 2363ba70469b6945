"""Everything the lab raises.

LabError
├── LabFailed                 the lab cannot be brought up or is not there
├── NodeFailed                a node does not start or does not answer
├── NetworkFailed             the lab's network cannot be set up
├── ControlPlaneFailed        a component of the control plane does not start
├── RegistryFailed            the registry does not start, or refuses an image
├── ProcessesRemain           processes of the lab do not end
└── DriverInstallationFailed  the simulated driver cannot be built, laid out or started
"""

from divvy.errors import CommandError


class LabError(CommandError):
    """The root of the lab's errors; the text says what failed and what to do."""


class LabFailed(LabError):
    """The lab cannot be brought up or is not there."""


class NodeFailed(LabError):
    """A node does not start or does not answer."""


class NetworkFailed(LabError):
    """The lab's network cannot be set up."""


class ControlPlaneFailed(LabError):
    """A component of the control plane does not start."""


class RegistryFailed(LabError):
    """The registry does not start, or refuses an image."""


class ProcessesRemain(LabError):
    """Processes of the lab do not end."""


class DriverInstallationFailed(LabError):
    """The simulated driver cannot be built, laid out or started."""
