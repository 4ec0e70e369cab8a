"""Phases and conditions. Made of the server's own by `make openapi`: do not edit."""

PHASES = (
    "Pending",
    "Initializing",
    "Running",
    "Suspended",
    "Succeeded",
    "Failed",
    "Unknown",
)
CONDITION_TYPES = (
    "Diverged",
    "Stalled",
    "NoProgress",
    "Reporting",
    "Fresh",
    "Straggling",
    "Plateaued",
    "AtRisk",
    "LowGoodput",
    "ShouldStop",
    "AcceleratorsIdle",
    "Suspended",
    "Complete",
    "Failed",
)
# Those that somebody has to look at, when they have this status.
FAULTS = {
    "Diverged": "True",
    "Stalled": "True",
    "NoProgress": "True",
    "Reporting": "False",
    "Fresh": "False",
    "Straggling": "True",
    "Plateaued": "True",
    "AtRisk": "True",
    "LowGoodput": "True",
    "ShouldStop": "True",
    "AcceleratorsIdle": "True",
}
