//! Checks before every run. All findings at once, each with its origin and a hint.
