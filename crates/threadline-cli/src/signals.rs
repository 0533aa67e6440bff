//! The first interrupt ends the work in good order, the second at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    failure::{Exit, Failure, Outcome},
    ui::Ui,
};

/// Returns a token that SIGINT, SIGTERM or SIGHUP cancels. Must be called inside the runtime.
pub(crate) fn listen(ui: Ui) -> Outcome<CancellationToken> {
    let failed = |error: std::io::Error| {
        Failure::new(
            "internal",
            format!("signals cannot be listened to: {error}"),
        )
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        loop {
            let interrupted = tokio::select! {
                _ = interrupt.recv() => true,
                _ = terminate.recv() => false,
                _ = hangup.recv() => false,
            };
            if interrupted && cancel.is_cancelled() {
                std::process::exit(Exit::Cancelled as i32);
            }
            if !cancel.is_cancelled() {
                ui.note("Cancelling; press Ctrl-C again to stop at once.");
                cancel.cancel();
            }
        }
    });
    Ok(token)
}

/// Lets a write over the size limit of the process fail like one on a full disk, instead of
/// ending the process in the middle of it.
pub(crate) fn ignore_file_size_signal() {
    // A handler that does nothing is enough: the write then returns its error.
    if let Ok(mut ignored) = signal(SignalKind::from_raw(SIGXFSZ)) {
        tokio::spawn(async move { while ignored.recv().await.is_some() {} });
    }
}

/// The same number on every Linux architecture but MIPS, and on macOS.
const SIGXFSZ: i32 = 25;
