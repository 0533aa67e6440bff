//! What a run prints: lines of JSON for programs, or text for people.

use threadline_agent::RunEvent;
use threadline_session::{
    Payload,
    payload::{AssistantPart, ChunkKind, Outcome as CallOutcome, plain_text},
};

use crate::{
    text,
    ui::{Tone, Ui, write_out},
};

/// Characters of a call's arguments and result that people are shown.
const SHOWN: usize = 160;

/// Prints the events of one run.
pub(crate) struct Renderer {
    ui: Ui,
    json: bool,
    /// Nobody reads standard output any more. The run goes on, and its end is logged.
    gone: bool,
    /// Text of this step was streamed already.
    streamed: bool,
    /// Text of this run was printed.
    said: bool,
    /// The last text on standard output did not end its line.
    open_line: bool,
}

impl Renderer {
    pub(crate) fn new(ui: Ui, json: bool) -> Self {
        Self {
            ui,
            json,
            gone: false,
            streamed: false,
            said: false,
            open_line: false,
        }
    }

    fn write(&mut self, text: &str) {
        if self.gone {
            return;
        }
        if let Err(error) = write_out(text.as_bytes()) {
            self.gone = true;
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                self.ui.warning(&format!(
                    "standard output cannot be written ({error}); the run goes on and is logged"
                ));
            }
        }
    }

    pub(crate) fn event(&mut self, event: &RunEvent) {
        if self.json {
            match event.to_json() {
                Ok(line) => self.write(&format!("{}\n", line.get())),
                Err(error) => self
                    .ui
                    .warning(&format!("an event cannot be shown: {error}")),
            }
            return;
        }
        match event {
            RunEvent::RunStarted { recovered, .. } => {
                if let Some(recovered) = recovered {
                    self.recovered(recovered);
                }
            }
            // An event of a type that this version cannot read is in the log all the same.
            RunEvent::Log(line) => {
                if let Ok(payload) = line.event.payload() {
                    self.payload(&payload);
                }
            }
            RunEvent::ApprovalRequired(_) => self.end_line(),
            RunEvent::ApprovalResolved { decision, by, .. } => {
                let decision = serde_json::to_value(decision).unwrap_or_default();
                let decision = decision.as_str().unwrap_or("decided").replace('_', " ");
                self.note(&format!("  {decision} by {by}"));
            }
            RunEvent::RunFinished { answer, .. } => {
                // What no model said, as that the history was made shorter.
                if !self.said {
                    self.text(answer);
                }
                self.end_line();
            }
            RunEvent::Error(_) => self.end_line(),
        }
    }

    fn recovered(&self, recovered: &threadline_store::Recovered) {
        self.ui.warning(&format!(
            "recovered: {} at the end of {} were never fully written ({}); they are now in {}",
            text::count(recovered.torn.bytes, "byte", "bytes"),
            recovered.torn.file,
            recovered.torn.reason,
            recovered.moved_to,
        ));
    }

    fn payload(&mut self, payload: &Payload) {
        match payload {
            Payload::StepStart(_) => self.streamed = false,
            Payload::AssistantChunk(chunk) => {
                for part in chunk
                    .parts
                    .iter()
                    .filter(|part| part.kind == ChunkKind::Text)
                {
                    self.text(&part.delta);
                    self.streamed = true;
                }
            }
            Payload::AssistantMessage(message) => {
                for part in &message.content {
                    match part {
                        AssistantPart::Text { text } if !self.streamed => self.text(text),
                        AssistantPart::Text { .. }
                        | AssistantPart::Reasoning { .. }
                        | AssistantPart::ToolCall { .. }
                        | AssistantPart::Unknown => {}
                    }
                }
                self.end_line();
                for call in message.calls() {
                    let name = self.ui.err(Tone::Strong, &text::line(call.name, SHOWN));
                    self.note(&format!("> {name} {}", text::line(call.arguments, SHOWN)));
                }
            }
            Payload::ToolResult(result) => {
                let said = text::line(&plain_text(&result.content), SHOWN);
                let (tone, word) = outcome(result.outcome);
                let word = self.ui.err(tone, word);
                self.note(&format!(
                    "< {} {word}: {said}",
                    text::line(&result.name, SHOWN)
                ));
            }
            Payload::CompactionSummary(summary) => {
                let after = summary
                    .tokens_after
                    .map_or(String::new(), |after| format!(" to {after}"));
                self.note(&format!(
                    "  the history was compacted: from about {}{after} tokens",
                    summary.tokens_before
                ));
            }
            Payload::ModelRetry(trouble) => {
                let wait = trouble.delay_ms.unwrap_or(0) / 1000;
                self.note(&format!(
                    "  {}; trying again in {wait} s",
                    text::line(&trouble.message, 500)
                ));
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.said = true;
        let text = self.ui.foreign(text);
        self.write(&text);
        self.open_line = !text.ends_with('\n');
    }

    /// Ends the line of text on standard output, so that notes begin on their own.
    pub(crate) fn end_line(&mut self) {
        if self.open_line {
            self.write("\n");
            self.open_line = false;
        }
    }

    fn note(&mut self, text: &str) {
        self.end_line();
        self.ui.note(text);
    }
}

/// Returns the word for how a call ended.
pub(crate) fn outcome(outcome: CallOutcome) -> (Tone, &'static str) {
    match outcome {
        CallOutcome::Ok => (Tone::Good, "ok"),
        CallOutcome::Error => (Tone::Bad, "error"),
        CallOutcome::Denied => (Tone::Warning, "denied"),
        CallOutcome::Timeout => (Tone::Bad, "timeout"),
        CallOutcome::Cancelled => (Tone::Warning, "cancelled"),
        CallOutcome::NotStarted => (Tone::Warning, "not started"),
        CallOutcome::Unknown => (Tone::Bad, "outcome unknown"),
    }
}
