"""Target records: one file a target. Passes and schedules ask for properties, never for names."""
