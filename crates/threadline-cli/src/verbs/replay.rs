//! `threadline replay`: the agent loop runs again over a session's log, and must make it again.

use threadline_agent::{Divergence, ReplayOptions, ReplayReport, replay as replay_session};
use threadline_store::SessionStore;

use crate::{
    args::Replay,
    failure::{Exit, Failure, Outcome},
    sessions, text,
    ui::{Progress, Tone, Ui},
};

/// Replays one session.
pub(crate) async fn replay(ui: Ui, store: &SessionStore, args: Replay) -> Outcome<Exit> {
    let id = sessions::find(store, &args.id).await?;
    let mut progress = Progress::new(ui, "Replaying", 1);
    progress.step();
    let replaying = replay_session(store, &id, ReplayOptions::default());
    let report = progress.during(Box::pin(replaying)).await;
    progress.clear();
    let report = report?;
    if args.json {
        ui.json(&report)?;
    } else {
        print(ui, &report)?;
    }
    if report.identical {
        return Ok(Exit::Completed);
    }
    ui.note(&format!(
        "Look at the log with `threadline verify {id} --requests`. A log that another version has \
         written may part where the program has changed since."
    ));
    Err(Failure::quiet(Exit::Failed))
}

fn print(ui: Ui, report: &ReplayReport) -> Outcome<()> {
    let replayed = format!(
        "replayed {} of {}:",
        text::count(report.steps, "step", "steps"),
        text::count(report.turns, "turn", "turns")
    );
    match &report.divergence {
        None => ui.line(&format!("{replayed} {}", ui.out(Tone::Good, "identical")))?,
        Some(divergence) => {
            ui.line(&format!("{replayed} {}", ui.out(Tone::Bad, "diverged")))?;
            diverged(ui, divergence)?;
        }
    }
    for note in &report.notes {
        let (turn, seq, why) = (note.turn, note.seq, &note.why);
        ui.line(&format!(
            "  note: turn {turn}: taken over from event {seq} on: {}",
            text::line(why, 200)
        ))?;
    }
    if report.bereft > 0 {
        ui.line(&format!(
            "  note: {} cannot be compared, because events before are lost",
            text::count(report.bereft, "step", "steps")
        ))?;
    }
    Ok(())
}

fn diverged(ui: Ui, divergence: &Divergence) -> Outcome<()> {
    ui.line(&format!(
        "  turn {}, step {}, seq {}: {}",
        divergence.turn,
        divergence.step,
        divergence.seq,
        text::line(&divergence.what, 500)
    ))?;
    if let Some(difference) = &divergence.difference {
        ui.line(&format!("  first different byte: {}", difference.byte))?;
        ui.line(&format!("  - log:    {}", ui.foreign(&difference.recorded)))?;
        ui.line(&format!("  + replay: {}", ui.foreign(&difference.replayed)))?;
    }
    Ok(())
}
