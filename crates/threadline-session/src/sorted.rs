//! JSON values with sorted keys, whatever order they are held in.
//!
//! Whether `serde_json` sorts the keys of a value is a feature that any crate of a program can
//! change for all others. Logs and fingerprints must not depend on who else is in the program.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;

struct Sorted<'a>(&'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => {
                let sorted: BTreeMap<_, _> = map.iter().map(|(k, v)| (k, Self(v))).collect();
                s.collect_map(sorted)
            }
            Value::Array(values) => s.collect_seq(values.iter().map(Self)),
            plain => plain.serialize(s),
        }
    }
}

pub(crate) fn serialize<S: Serializer>(value: &Value, s: S) -> Result<S::Ok, S::Error> {
    Sorted(value).serialize(s)
}
