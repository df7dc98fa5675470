"""For processes whose telemetry a test waits for: its last part leaves at their end, however busy the machine is."""

from telemetry import exporting

exporting.finish.__defaults__ = (60.0,)
