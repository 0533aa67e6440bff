//! Server-sent events from raw bytes, with bounded memory.
//!
//! Written here rather than taken from a library because of two needs: a line that never ends must
//! not fill the memory, and invalid UTF-8 must become U+FFFD instead of ending the stream.

use std::borrow::Cow;

use crate::{ModelError, limits};

/// Splits a byte stream into the data of its events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR that ended a line: an LF right after it belongs to the same end.
    after_cr: bool,
    begun: bool,
}

impl Decoder {
    /// Takes the next bytes and hands every completed event's data to `sink`.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        sink: &mut impl FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let mut rest = bytes;
        if std::mem::take(&mut self.after_cr) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            // An empty piece says nothing about what follows the CR.
            self.after_cr = bytes.is_empty();
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (head, tail) = rest.split_at(end);
            self.push(head)?;
            self.end_line(sink)?;
            rest = match tail {
                [b'\r', b'\n', after @ ..] => after,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, after @ ..] => after,
                [] => &[],
            };
        }
        self.push(rest)
    }

    /// Ends the stream; an event that lacks only its blank line is handed out too.
    pub(crate) fn finish(
        &mut self,
        sink: &mut impl FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        if !self.line.is_empty() {
            self.end_line(sink)?;
        }
        self.dispatch(sink)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        if self.line.len() + bytes.len() > limits::MAX_LINE_BYTES {
            return Err(too_long());
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(
        &mut self,
        sink: &mut impl FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let mut line = std::mem::take(&mut self.line);
        let first = !std::mem::replace(&mut self.begun, true);
        let text: &[u8] = match line.as_slice() {
            [0xEF, 0xBB, 0xBF, rest @ ..] if first => rest,
            all => all,
        };
        let result = if text.is_empty() {
            self.dispatch(sink)
        } else {
            self.field(text)
        };
        line.clear();
        self.line = line;
        result
    }

    fn field(&mut self, line: &[u8]) -> Result<(), ModelError> {
        let (name, value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        // Comments have an empty name; `event`, `id` and `retry` carry nothing that is needed.
        if name != b"data" {
            return Ok(());
        }
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if self.data.len() + value.len() + 1 > limits::MAX_LINE_BYTES {
            return Err(too_long());
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        self.has_data = true;
        Ok(())
    }

    fn dispatch(
        &mut self,
        sink: &mut impl FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        if !std::mem::take(&mut self.has_data) {
            return Ok(());
        }
        let mut data = std::mem::take(&mut self.data);
        let text: Cow<'_, str> = String::from_utf8_lossy(&data);
        let result = sink(&text);
        data.clear();
        self.data = data;
        result
    }
}

fn too_long() -> ModelError {
    ModelError::TooLarge {
        what: "bytes of one stream line",
        limit: limits::MAX_LINE_BYTES as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = Decoder::default();
        let mut out = Vec::new();
        let mut sink = |data: &str| {
            out.push(data.to_owned());
            Ok(())
        };
        for piece in pieces {
            decoder.feed(piece, &mut sink).unwrap();
        }
        decoder.finish(&mut sink).unwrap();
        out
    }

    #[test]
    fn every_cut_point_gives_the_same_events() {
        let stream = "\u{feff}: hi\r\ndata: {\"a\":\"é😀\"}\r\n\r\nevent: x\ndata:b\rdata: c\r\r\
                      retry: 5\n\ndata\n\nid: 1\ndata:  two\n\ndata: [DONE]"
            .as_bytes();
        let wanted = ["{\"a\":\"é😀\"}", "b\nc", "", " two", "[DONE]"];
        assert_eq!(events(&[stream]), wanted);
        for cut in 0..=stream.len() {
            let (a, b) = stream.split_at(cut);
            assert_eq!(events(&[a, b]), wanted, "cut at {cut}");
            assert_eq!(
                events(&[a, &[], b]),
                wanted,
                "cut at {cut} with an empty piece"
            );
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(events(&bytes), wanted);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(
            events(&[b"data: a\xff\xc3", b"b\n\n"]),
            ["a\u{fffd}\u{fffd}b"]
        );
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
        let mut decoder = Decoder::default();
        let piece = vec![b'x'; limits::MAX_LINE_BYTES];
        let mut sink = |_: &str| Ok(());
        decoder.feed(&piece, &mut sink).unwrap();
        let error = decoder.feed(b"x", &mut sink).unwrap_err();
        assert_eq!(error.code(), "response_too_large");
    }
}
