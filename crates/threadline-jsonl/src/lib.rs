//! The default backend: one directory of JSON lines per session
