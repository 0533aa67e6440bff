//! What happens on a connection, whatever the dialect.

use serde_json::Value;

/// Characters of a tool call's arguments in one frame.
const ARGUMENT_CHARS: usize = 8;

/// Something that happens on the connection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Move {
    Frame(String),
    Gate(String),
    Pause(u64),
    Cut,
    Stall,
}

/// Makes a frame with the event's name, which it holds itself too.
pub(crate) fn event(data: &Value) -> Move {
    let name = data["type"].as_str().unwrap_or_default();
    Move::Frame(format!("event: {name}\ndata: {data}\n\n"))
}

/// Makes a frame of what a script says.
pub(crate) fn raw(data: &str) -> Move {
    Move::Frame(format!("data: {data}\n\n"))
}

/// Returns a call's arguments as they are streamed.
pub(crate) fn argument_pieces(arguments: &Value) -> Vec<String> {
    let chars: Vec<char> = argument_text(arguments).chars().collect();
    let pieces = chars.chunks(ARGUMENT_CHARS);
    pieces.map(|piece| piece.iter().collect()).collect()
}

/// Returns a call's arguments as text.
pub(crate) fn argument_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
