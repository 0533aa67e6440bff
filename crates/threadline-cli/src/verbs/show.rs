//! `threadline show`: a session by turns, as the model sees it, or line by line.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use threadline_session::{
    HistoryItem, Payload, Request, RequestError, SessionId, Turn, TurnItem,
    payload::{AssistantPart, ChunkKind, ContentPart, EndReason, SeqRange, plain_text},
    types,
};
use threadline_store::{
    Entry, Holder, Inspected, ReadError, ReadPos, SessionStore, SessionSummary,
};

use super::ls::status;
use crate::{
    args::Show,
    failure::{Exit, Failure, Outcome},
    render, sessions, text,
    ui::{Tone, Ui},
};

/// Lines of a tool's result that people are shown.
const RESULT_LINES: usize = 20;

/// What a compaction came to.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Seam {
    seq: u64,
    replaces: SeqRange,
    tokens_before: u64,
    tokens_after: Option<u64>,
}

/// The compactions of a session by their events.
type Seams = BTreeMap<u64, Seam>;

/// Shows a session, damaged or not.
pub(crate) async fn show(ui: Ui, store: &SessionStore, args: Show) -> Outcome<Exit> {
    let id = sessions::find(store, &args.id).await?;
    if args.raw {
        return raw(ui, store, &id).await;
    }
    if let Some(step) = args.request {
        return request(ui, store, &id, step, args.json).await;
    }
    let inspected = if args.history {
        let inspected = store.inspect_turns(&id, drop).await?;
        history(ui, &inspected, args.json)?;
        inspected
    } else if args.json {
        as_json(ui, store, &id).await?
    } else {
        by_turns(ui, store, &id).await?
    };
    troubles(ui, &id, &inspected);
    Ok(Exit::Completed)
}

/// Prints a session turn by turn, each as soon as it is read.
async fn by_turns(ui: Ui, store: &SessionStore, id: &SessionId) -> Outcome<Inspected> {
    let summary = store.summary(id).await?;
    let writer = store.stat(id).await?.writer;
    head(ui, writer.as_ref(), &summary)?;
    if let Some(file) = &summary.people_damaged {
        ui.warning(&format!(
            "the title and whatever else was set by hand cannot be read: {file} is damaged. It is \
             kept, and moved to the session's quarantine by the next change."
        ));
    }
    let seams = seams(store, id).await;
    let show = |turn: &Turn| one_turn(ui, id, &seams, turn, writer.is_some());
    let mut printed = Ok(());
    let inspected = store
        .inspect_turns(id, |turn| {
            if printed.is_ok() {
                printed = show(&turn);
            }
        })
        .await?;
    printed?;
    inspected.view.turns().iter().try_for_each(show)?;
    Ok(inspected)
}

/// Finds the compactions, as far as the log can be read.
async fn seams(store: &SessionStore, id: &SessionId) -> Seams {
    let mut seams = Seams::new();
    let read = store
        .each_event(id, |line| {
            if line.event.kind == types::COMPACTION_SUMMARY
                && let Ok(Payload::CompactionSummary(summary)) = line.event.payload()
            {
                let seam = Seam {
                    seq: line.event.seq,
                    replaces: summary.replaces,
                    tokens_before: summary.tokens_before,
                    tokens_after: summary.tokens_after,
                };
                seams.insert(seam.seq, seam);
            }
            true
        })
        .await;
    // What is wrong with a log is told where its turns are read.
    drop(read);
    seams
}

/// Prints a session as one JSON object, each turn as soon as it is read.
async fn as_json(ui: Ui, store: &SessionStore, id: &SessionId) -> Outcome<Inspected> {
    let summary = store.summary(id).await?;
    let header = store.header(id).await?.header;
    ui.print(&format!(
        "{{\"summary\":{},\"header\":{},\"turns\":[",
        json_text(&summary)?,
        json_text(&header)?
    ))?;
    let mut printed = Ok(());
    let mut first = true;
    let mut print = |turn: &Turn| {
        let comma = if std::mem::take(&mut first) { "" } else { "," };
        ui.print(&format!("{comma}{}", json_text(turn)?))
    };
    let inspected = store
        .inspect_turns(id, |turn| {
            if printed.is_ok() {
                printed = print(&turn);
            }
        })
        .await?;
    printed?;
    inspected.view.turns().iter().try_for_each(print)?;
    let seams = seams(store, id).await;
    ui.line(&format!(
        "],\"compactions\":{},\"unstored\":{},\"damage\":{},\"torn\":{},\"unsupported\":{}}}",
        json_text(&seams.into_values().collect::<Vec<_>>())?,
        inspected.unstored,
        json_text(&inspected.damage)?,
        json_text(&inspected.torn)?,
        json_text(&inspected.unsupported)?
    ))?;
    Ok(inspected)
}

fn json_text(value: &impl Serialize) -> Outcome<String> {
    serde_json::to_string(value).map_err(|error| Failure::new("internal", error.to_string()))
}

/// Tells what is wrong with a log, and what is only worth knowing.
fn troubles(ui: Ui, id: &SessionId, inspected: &Inspected) {
    for damage in &inspected.damage {
        ui.warning(&format!(
            "damaged: {} at byte {}, seq {}: {}",
            damage.file, damage.offset, damage.seq, damage.reason
        ));
    }
    if !inspected.damage.is_empty() {
        ui.note(&format!(
            "  Shown is what stands before the damage; all valid lines are in `threadline show \
             {id} --raw`. The session cannot be resumed."
        ));
    }
    if let Some(reason) = &inspected.unsupported {
        ui.warning(&format!("{reason}. Shown is what stands before it."));
    }
    if let Some(torn) = &inspected.torn {
        ui.warning(&format!(
            "{} at the end of {} (byte {}) were never fully written: {}. The next `threadline run \
             --session {id}` moves them aside.",
            text::count(torn.bytes, "byte", "bytes"),
            torn.file,
            torn.offset,
            torn.reason
        ));
    }
    if inspected.unstored > 0 {
        ui.warning(&format!(
            "the last turn was interrupted; its last {} shown here are appended when the session \
             is resumed",
            text::count(inspected.unstored as u64, "event", "events")
        ));
    }
}

fn head(ui: Ui, writer: Option<&Holder>, row: &SessionSummary) -> Outcome<()> {
    let (tone, word) = status(row.status);
    let title = row
        .title
        .as_ref()
        .map_or(String::new(), |title| format!("  \"{title}\""));
    ui.line(&format!(
        "Session {}{}",
        ui.out(Tone::Strong, row.id.as_str()),
        ui.foreign(&title)
    ))?;
    let mut facts = vec![
        ("status", ui.out(tone, word)),
        ("directory", ui.foreign(&row.cwd)),
        ("created", text::moment(row.created_at)),
        ("active", text::moment(row.updated_at)),
    ];
    if let Some(model) = &row.model {
        facts.push((
            "model",
            format!("{}/{}", model.provider, ui.foreign(&model.name)),
        ));
    }
    facts.push((
        "size",
        format!(
            "{}, {}, {}",
            text::count(row.turns, "turn", "turns"),
            text::count(row.events, "event", "events"),
            text::bytes(row.bytes)
        ),
    ));
    let usage = row.usage;
    facts.push((
        "tokens",
        format!("{} in, {} out", usage.input_tokens, usage.output_tokens),
    ));
    let usage = row.subagent_usage;
    if !usage.is_zero() {
        facts.push((
            "subagents",
            format!("{} in, {} out", usage.input_tokens, usage.output_tokens),
        ));
    }
    if let Some(holder) = writer {
        facts.push((
            "writer",
            format!("{holder} since {}", text::moment(holder.since)),
        ));
    }
    for (name, value) in facts {
        ui.line(&format!("  {name:<10} {value}"))?;
    }
    Ok(())
}

fn one_turn(ui: Ui, id: &SessionId, seams: &Seams, turn: &Turn, written: bool) -> Outcome<()> {
    let reason = match &turn.head.reason {
        Some(EndReason::Error { message, .. }) => format!("failed: {message}"),
        Some(reason) => reason.name().replace('_', " "),
        None if written => "running".into(),
        None => "its end cannot be read".into(),
    };
    let line = format!(
        "Turn {}  {}  {}",
        turn.head.turn,
        text::moment(turn.head.started_at),
        text::line(&reason, 500)
    );
    ui.line("")?;
    ui.line(&ui.out(Tone::Strong, &line))?;
    for item in &turn.items {
        let shown = match item {
            TurnItem::Compaction { .. } => one_seam(ui, id, seams, item),
            item => one_item(ui, item),
        };
        if !shown.is_empty() {
            ui.print(&shown)?;
        }
    }
    Ok(())
}

fn one_item(ui: Ui, item: &TurnItem) -> String {
    let said = |who: &str, text: &str| {
        format!(
            "  {}\n{}",
            ui.out(Tone::Faint, who),
            text::indent(&ui.foreign(text), "    ")
        )
    };
    match item {
        TurnItem::System { .. } => String::new(),
        TurnItem::User {
            content, source, ..
        } => {
            let who = match source {
                threadline_session::payload::UserSource::Context => return String::new(),
                threadline_session::payload::UserSource::User => "You",
                threadline_session::payload::UserSource::Queued => "You (queued)",
                threadline_session::payload::UserSource::Steer => "You (meanwhile)",
            };
            said(who, &plain_text(content))
        }
        TurnItem::Assistant(message) => {
            let who = match (message.streaming, message.interrupted) {
                (true, _) => "Assistant (writing)",
                (_, true) => "Assistant (interrupted)",
                _ => "Assistant",
            };
            let text: String = message
                .parts
                .iter()
                .filter(|part| part.kind == ChunkKind::Text)
                .map(|part| part.text.as_str())
                .collect();
            if text.is_empty() {
                String::new()
            } else {
                said(who, &text)
            }
        }
        TurnItem::Tool(_) => one_call(ui, item),
        // It stands between the items: a seam.
        TurnItem::Compaction { .. } => String::new(),
        TurnItem::Head { to_seq, .. } => format!("  The history goes on from event {to_seq}.\n"),
        TurnItem::Notice { message, .. } => {
            format!(
                "  {} {}\n",
                ui.out(Tone::Warning, "model:"),
                text::line(message, 500)
            )
        }
        TurnItem::Lost {
            events,
            bytes,
            reason,
            ..
        } => format!(
            "  {} events {} to {} ({bytes} bytes): {}\n",
            ui.out(Tone::Warning, "lost for good:"),
            events.from_seq,
            events.to_seq,
            text::line(reason, 500)
        ),
    }
}

/// Shows a compaction: what it replaced, what it spared, and where the originals are.
fn one_seam(ui: Ui, id: &SessionId, seams: &Seams, item: &TurnItem) -> String {
    let TurnItem::Compaction {
        seq,
        summary,
        replaces,
        ..
    } = item
    else {
        return String::new();
    };
    let tokens = seams.get(seq).map_or(String::new(), |seam| {
        let after = seam
            .tokens_after
            .map_or(String::new(), |after| format!(", {after} after"));
        format!("; about {} tokens before{after}", seam.tokens_before)
    });
    let line = format!(
        "---- from here on, a summary stands for events {} to {}{tokens} ----",
        replaces.from_seq, replaces.to_seq
    );
    let originals = format!(
        "The originals are above and in the log; go on with them: threadline fork {id} --at {}",
        seq.saturating_sub(1)
    );
    format!(
        "  {}\n{}    {}\n",
        ui.out(Tone::Strong, &line),
        text::indent(&ui.foreign(&plain_text(summary)), "    "),
        ui.out(Tone::Faint, &originals)
    )
}

fn one_call(ui: Ui, item: &TurnItem) -> String {
    let TurnItem::Tool(tool) = item else {
        return String::new();
    };
    let (tone, word) = tool
        .outcome
        .map_or((Tone::Warning, "open"), render::outcome);
    let mut shown = format!(
        "  {} {}  {}\n",
        ui.out(Tone::Strong, &format!("> {}", text::line(&tool.name, 80))),
        text::line(&tool.arguments, 300),
        ui.out(tone, word)
    );
    if tool.outside_sandbox {
        let mark = ui.out(Tone::Warning, "ran WITHOUT the sandbox");
        shown.push_str(&format!("    {mark}\n"));
    }
    if let Some(grant) = &tool.grant_id {
        shown.push_str(&format!(
            "    covered by the grant {}\n",
            text::line(grant, 80)
        ));
    }
    if let Some(approval) = &tool.approval {
        let decision = serde_json::to_value(approval.decision).unwrap_or_default();
        let decision = decision.as_str().unwrap_or("not decided").replace('_', " ");
        shown.push_str(&format!(
            "    approval: {decision} ({})\n",
            text::line(&approval.reason, 600)
        ));
    }
    shown.push_str(&shortened(ui, &plain_text(&tool.content)));
    shown
}

fn shortened(ui: Ui, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (shown, rest) = lines.split_at(lines.len().min(RESULT_LINES));
    let mut block = text::indent(&ui.foreign(&shown.join("\n")), "    ");
    if !rest.is_empty() {
        block.push_str(&format!(
            "    ({} more; `--json` shows all)\n",
            text::count(rest.len() as u64, "line", "lines")
        ));
    }
    block
}

fn history(ui: Ui, inspected: &Inspected, json: bool) -> Outcome<()> {
    let (request, report) = match Request::build(inspected.view.transcript()) {
        Ok(built) => built,
        Err(RequestError::NoTurn) => {
            return Err(Failure::new(
                "no_turn",
                "the session has no turn, so it has no history",
            ));
        }
        Err(error) => return Err(Failure::new("internal", error.to_string())),
    };
    if json {
        return ui.json(&json!({"items": request.items, "normalised": report}));
    }
    for (at, item) in request.items.iter().enumerate() {
        let (who, text) = match item {
            HistoryItem::User { content } => ("user".to_owned(), parts_text(content)),
            HistoryItem::Assistant { content, .. } => {
                let texts: Vec<String> = content.iter().map(part_text).collect();
                ("assistant".to_owned(), texts.join("\n"))
            }
            HistoryItem::Tool {
                call_id,
                name,
                content,
                ..
            } => (format!("tool {name} ({call_id})"), parts_text(content)),
        };
        ui.line(&ui.out(Tone::Strong, &format!("[{at}] {}", text::line(&who, 200))))?;
        ui.print(&text::indent(&ui.foreign(&text), "    "))?;
    }
    Ok(())
}

fn parts_text(parts: &[ContentPart]) -> String {
    let texts: Vec<String> = parts
        .iter()
        .map(|part| match part {
            ContentPart::Text { text } => text.clone(),
            ContentPart::Image { media_type, .. } => format!("({media_type})"),
            ContentPart::Unknown => "(unknown part)".into(),
        })
        .collect();
    texts.join("\n")
}

fn part_text(part: &AssistantPart) -> String {
    match part {
        AssistantPart::Text { text } => text.clone(),
        AssistantPart::Reasoning { text } => format!("(reasoning) {text}"),
        AssistantPart::ToolCall {
            call_id,
            name,
            arguments,
        } => {
            format!("> {name} {arguments} ({call_id})")
        }
        AssistantPart::Unknown => "(unknown part)".into(),
    }
}

/// Prints the request of a step, rebuilt from the log, with the check against what was sent.
async fn request(
    ui: Ui,
    store: &SessionStore,
    id: &SessionId,
    step: u64,
    json: bool,
) -> Outcome<Exit> {
    let Some(rebuilt) = store.request_of_step(id, step).await? else {
        return Err(Failure::usage(format!("session {id} has no step {step}"))
            .hint(format!("see its turns with `threadline show {id} --json`")));
    };
    let internal = |error: RequestError| Failure::new("internal", error.to_string());
    let rebuilt = rebuilt.map_err(internal)?;
    let print = rebuilt.request.fingerprint().map_err(internal)?;
    let recorded = &rebuilt.start.request;
    let matches = print.hash == recorded.fingerprint;
    if json {
        ui.json(&json!({
            "step": step,
            "seq": rebuilt.seq,
            "matches": matches,
            "recorded": recorded,
            "rebuilt": {
                "fingerprint": print.hash,
                "items": print.items,
                "bytes": print.bytes,
            },
            "request": rebuilt.request,
        }))?;
    } else {
        let pretty = serde_json::to_string_pretty(&rebuilt.request)
            .map_err(|error| Failure::new("internal", error.to_string()))?;
        ui.line(&pretty)?;
    }
    if matches {
        ui.note(&format!(
            "Rebuilt from the log; the fingerprint {} is the one that was sent.",
            print.hash
        ));
        return Ok(Exit::Completed);
    }
    Err(Failure::new(
        "damaged",
        format!(
            "seq {}: what was sent at step {step} had the fingerprint {}, and what the log rebuilds \
             has {}",
            rebuilt.seq, recorded.fingerprint, print.hash
        ),
    )
    .hint(format!("check the log with `threadline verify {id}`")))
}

/// Prints the log's lines as they are stored, a page at a time, however long the log is.
async fn raw(ui: Ui, store: &SessionStore, id: &SessionId) -> Outcome<Exit> {
    match store.header(id).await {
        Ok(header) => ui.print(&String::from_utf8_lossy(&header.line))?,
        Err(error @ (ReadError::Corrupt { .. } | ReadError::Unsupported { .. })) => {
            ui.warning(&format!("the header is left out: {error}"));
        }
        Err(error) => return Err(error.into()),
    }
    let mut next = Some(ReadPos::default());
    while let Some(from) = next {
        let page = store.read(id, from, usize::MAX).await?;
        for entry in page.entries {
            match entry {
                Entry::Header(_) => {}
                Entry::Line(line, _) => ui.line(&String::from_utf8_lossy(&line.raw))?,
                Entry::Damage(damage) => ui.warning(&format!(
                    "damaged: {} at byte {}, seq {}: {} ({} left out)",
                    damage.file,
                    damage.offset,
                    damage.seq,
                    damage.reason,
                    text::count(damage.bytes, "byte", "bytes")
                )),
            }
        }
        next = page.next;
    }
    Ok(Exit::Completed)
}
