//! `threadline store copy`: sessions from one store into another.

use serde_json::json;
use threadline_session::SessionId;
use threadline_store::{Copied, CopyError, SessionStore};

use crate::{
    address::Address,
    args::Copy,
    failure::{Exit, Failure, Outcome},
    sessions,
    store::{Purpose, open_at},
    text,
    ui::{Progress, Tone, Ui},
};

/// Copies all sessions or some. One that cannot be copied does not keep the others.
pub(crate) async fn copy(ui: Ui, args: Copy) -> Outcome<Exit> {
    let from = Address::parse(&args.from, "FROM")?.absolute()?;
    let to = Address::parse(&args.to, "TO")?.absolute()?;
    if from == to {
        return Err(Failure::usage(format!("FROM and TO are both {from}"))
            .hint("name another store to copy into"));
    }
    let source = open_at(&from, Purpose::Read).await?;
    let mut ids = Vec::new();
    for name in &args.ids {
        ids.push(sessions::find(&source, name).await?);
    }
    if args.ids.is_empty() {
        ids = source.ids().await?;
    }
    ids.sort();
    ids.dedup();
    // Only now, so that a mistyped name makes no store.
    let target = open_at(&to, Purpose::Write).await?;
    let mut copier = Copier {
        ui,
        json: args.json,
        tally: Tally::default(),
        rows: Vec::new(),
    };
    let mut progress = Progress::new(ui, "Copying", ids.len());
    for id in &ids {
        progress.step();
        let copied = source.copy_to(&target, id).await;
        progress.clear();
        copier.tell(id, copied)?;
    }
    progress.done();
    copier.finish(&source, &target)
}

#[derive(Debug, Default)]
struct Tally {
    new: u64,
    caught_up: u64,
    same: u64,
    failed: u64,
}

struct Copier {
    ui: Ui,
    json: bool,
    tally: Tally,
    rows: Vec<serde_json::Value>,
}

impl Copier {
    fn tell(&mut self, id: &SessionId, copied: Result<Copied, CopyError>) -> Outcome<()> {
        let (tone, word, events) = match &copied {
            Ok(Copied::New { events }) => {
                self.tally.new += 1;
                (Tone::Good, "new", *events)
            }
            Ok(Copied::CaughtUp { events }) => {
                self.tally.caught_up += 1;
                (Tone::Good, "caught up", *events)
            }
            Ok(Copied::Same) => {
                self.tally.same += 1;
                (Tone::Faint, "same", 0)
            }
            Err(_) => {
                self.tally.failed += 1;
                (Tone::Bad, "failed", 0)
            }
        };
        let reason = copied.err().map(|error| text::chain(&error));
        if self.json {
            let mut row = json!({
                "id": id,
                "outcome": word.replace(' ', "_"),
                "events": events,
            });
            if let Some(reason) = reason {
                row["reason"] = reason.into();
            }
            self.rows.push(row);
            return Ok(());
        }
        let more = match reason {
            Some(reason) => format!(": {}", self.ui.foreign(&reason)),
            None if events > 0 => format!(", {}", text::count(events, "event", "events")),
            None => String::new(),
        };
        let word = self.ui.out(tone, word);
        self.ui.line(&format!("{id}  {word}{more}"))
    }

    fn finish(self, from: &SessionStore, to: &SessionStore) -> Outcome<Exit> {
        let Tally {
            new,
            caught_up,
            same,
            failed,
        } = self.tally;
        let (from, to) = (from.address(), to.address());
        if self.json {
            self.ui.json(&json!({
                "from": from,
                "to": to,
                "new": new,
                "caughtUp": caught_up,
                "same": same,
                "failed": failed,
                "sessions": self.rows,
            }))?;
        }
        self.ui.note(&format!(
            "Copied from {from} to {to}: {new} new, {caught_up} caught up, {same} the same, \
             {failed} failed."
        ));
        if failed == 0 {
            return Ok(Exit::Completed);
        }
        self.ui.note(
            "What failed is not in the other store, or as it was there; check it where it is with \
             `threadline verify ID`, then type the same command again.",
        );
        Err(Failure::quiet(Exit::Failed))
    }
}
