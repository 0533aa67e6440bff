//! Decoding whole streams, for the tests of every dialect.

use threadline_session::payload::{AssistantPart, ChunkPart};

use crate::{
    Completion, ModelError,
    http::{Decode, Progress},
    sse,
};

/// What a decoder made of a stream.
pub(crate) struct Decoded {
    pub(crate) chunks: Vec<ChunkPart>,
    pub(crate) end: Result<Completion, ModelError>,
}

/// Decodes a stream that comes in these pieces, as a call does.
pub(crate) fn decode<D: Decode>(mut answer: D, pieces: &[&[u8]]) -> Decoded {
    let mut events = sse::Decoder::default();
    let mut chunks = Vec::new();
    let mut progress = Progress::Writing;
    let mut take = |data: &str| {
        if progress != Progress::Complete {
            progress = answer.event(data, &mut chunks)?;
        }
        Ok(())
    };
    let fed = pieces
        .iter()
        .try_for_each(|piece| events.feed(piece, &mut take))
        .and_then(|()| events.finish(&mut take));
    let end = fed.and_then(|()| answer.complete());
    if let Ok(done) = &end {
        check(&chunks, done);
    }
    Decoded { chunks, end }
}

/// The part at position `i` is the one whose deltas carried index `i`.
fn check(chunks: &[ChunkPart], done: &Completion) {
    for (at, part) in done.content.iter().enumerate() {
        let streamed: String = chunks
            .iter()
            .filter(|chunk| chunk.index as usize == at)
            .map(|chunk| chunk.delta.as_str())
            .collect();
        match part {
            AssistantPart::Text { text } | AssistantPart::Reasoning { text } => {
                assert_eq!(&streamed, text);
            }
            AssistantPart::ToolCall { arguments, .. } if streamed.trim().is_empty() => {
                assert_eq!(arguments, "{}");
            }
            AssistantPart::ToolCall { arguments, .. } => assert_eq!(&streamed, arguments),
            AssistantPart::Unknown => panic!("an unknown part"),
        }
    }
}

/// Decodes a stream cut at every byte and checks that it is always the same answer.
pub(crate) fn at_every_cut<D: Decode>(answer: &D, stream: &str) -> Completion {
    let bytes = stream.as_bytes();
    let whole = decode(answer.clone(), &[bytes]);
    let wanted = whole.end.unwrap();
    for cut in 0..=bytes.len() {
        let (a, b) = bytes.split_at(cut);
        let found = decode(answer.clone(), &[a, b]);
        assert_eq!(found.end.unwrap(), wanted, "cut at {cut}");
        assert_eq!(found.chunks, whole.chunks, "cut at {cut}");
        // Cut off for good: half an answer is never taken for a whole one, and nothing panics.
        if let Ok(found) = decode(answer.clone(), &[a]).end {
            assert_eq!(found.content, wanted.content, "cut off at {cut}");
        }
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(answer.clone(), &single).end.unwrap(), wanted);
    wanted
}

/// Makes a stream of events.
pub(crate) fn stream(events: &[serde_json::Value]) -> String {
    let one = |event: &serde_json::Value| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    };
    events.iter().map(one).collect()
}

/// Replaces, doubles, drops and swaps events and their fields, and checks that nothing panics and
/// that whatever is understood is consistent.
pub(crate) fn garbage<D: Decode>(answer: &D, events: &[serde_json::Value]) {
    use serde_json::{Value, json};
    let odd = [
        Value::Null,
        json!(-1),
        json!(1e300),
        json!("x\u{0}\u{fffd}"),
        json!([]),
        json!({}),
        json!([[{}]]),
        json!(u64::MAX),
        json!(true),
    ];
    let run = |events: &[Value]| {
        let stream = stream(events);
        drop(decode(answer.clone(), &[stream.as_bytes()]));
    };
    for at in 0..events.len() {
        for odd in &odd {
            let mut mutated = events.to_vec();
            mutated[at] = odd.clone();
            run(&mutated);
            let keys: Vec<String> = events[at]
                .as_object()
                .map(|map| map.keys().cloned().collect())
                .unwrap_or_default();
            for key in keys {
                let mut mutated = events.to_vec();
                mutated[at][&key] = odd.clone();
                run(&mutated);
                let inner: Vec<String> = events[at][&key]
                    .as_object()
                    .map(|map| map.keys().cloned().collect())
                    .unwrap_or_default();
                for inner in inner {
                    let mut mutated = events.to_vec();
                    mutated[at][&key][&inner] = odd.clone();
                    run(&mutated);
                    mutated[at][&key].as_object_mut().unwrap().remove(&inner);
                    run(&mutated);
                }
            }
        }
        for other in 0..events.len() {
            let mut swapped = events.to_vec();
            swapped.swap(at, other);
            run(&swapped);
        }
        let mut fewer = events.to_vec();
        fewer.remove(at);
        run(&fewer);
        let mut more = events.to_vec();
        more.insert(at, events[at].clone());
        run(&more);
    }
}
