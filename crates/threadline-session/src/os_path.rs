//! Paths of the operating system inside JSON, whatever their bytes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A path that survives a round trip through the log.
///
/// A path that is valid UTF-8 is a JSON string; any other is `{"bytes":"<hex>"}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OsPath(PathBuf);

impl OsPath {
    /// Returns the path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Returns the path as text for people; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn display(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl<P: Into<PathBuf>> From<P> for OsPath {
    fn from(path: P) -> Self {
        Self(path.into())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    bytes: String,
}

impl Serialize for OsPath {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => s.serialize_str(text),
            None => Bytes {
                bytes: hex(self.0.as_os_str().as_encoded_bytes()),
            }
            .serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for OsPath {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = OsPath;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a path, or an object with its bytes in hex")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OsPath, E> {
                Ok(OsPath(PathBuf::from(text)))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<OsPath, A::Error> {
                let held = Bytes::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                let bytes = unhex(&held.bytes)
                    .ok_or_else(|| A::Error::custom("the bytes of a path must be hex"))?;
                Ok(OsPath(from_bytes(bytes)))
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(unix)]
fn from_bytes(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(not(unix))]
fn from_bytes(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_a_round_trip() {
        for bytes in [
            &b"/tmp/plain"[..],
            b"/tmp/\xff\xfe",
            "/tmp/\u{e9}".as_bytes(),
        ] {
            let path = OsPath(from_bytes(bytes.to_vec()));
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(
                serde_json::from_str::<OsPath>(&json).unwrap(),
                path,
                "{json}"
            );
        }
    }
}
