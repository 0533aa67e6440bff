//! A strict model server for tests: refuses what the real ones refuse
