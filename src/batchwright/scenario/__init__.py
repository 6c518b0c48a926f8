"""Scenarios: everything that a comparison needs, as flags, as YAML and as an object.

A key of the YAML is the flag of the same name; both are the fields of `Scenario`.
"""

from batchwright.scenario.keys import Scenario as Scenario
