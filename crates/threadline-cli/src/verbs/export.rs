//! `threadline export`: a session as a file.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use threadline_server::{ExportError, Format};
use threadline_session::SessionId;
use threadline_store::SessionStore;

use crate::{
    args::{Export, ExportFormat},
    failure::{Exit, Failure, Outcome},
    sessions,
    ui::Ui,
};

/// Writes a session to standard output, or to a file that is there as a whole or not at all.
pub(crate) async fn export(ui: Ui, store: &SessionStore, args: Export) -> Outcome<Exit> {
    let id = sessions::find(store, &args.id).await?;
    let format = match args.format {
        ExportFormat::Jsonl => Format::Jsonl,
        ExportFormat::Markdown => Format::Markdown,
        ExportFormat::Html => Format::Html,
    };
    let file = args.output.as_ref().filter(|path| path.as_os_str() != "-");
    let Some(path) = file else {
        let mut take = |piece: String| {
            let mut out = io::stdout().lock();
            out.write_all(piece.as_bytes())?;
            out.flush()
        };
        return match threadline_server::export(store, &id, format, &mut take).await {
            Ok(()) => Ok(Exit::Completed),
            Err(ExportError::Read(error)) => Err(error.into()),
            Err(ExportError::Write(error)) => Err(Failure::stdout(&error)),
        };
    };
    if path.exists() && !args.force {
        let said = format!("{} exists already", path.display());
        return Err(Failure::usage(said).hint("name another file, or replace it with --force"));
    }
    whole(store, &id, format, path).await?;
    ui.note(&format!("Written to {}.", path.display()));
    Ok(Exit::Completed)
}

/// Writes a session as Markdown into a file that is not there yet.
pub(crate) async fn markdown(store: &SessionStore, id: &SessionId, path: &Path) -> Outcome<()> {
    if path.exists() {
        let said = format!("{} exists already", path.display());
        return Err(Failure::usage(said).hint("name another file: `/export FILE`"));
    }
    whole(store, id, Format::Markdown, path).await
}

/// Writes a file as a whole or not at all.
async fn whole(store: &SessionStore, id: &SessionId, format: Format, path: &Path) -> Outcome<()> {
    let part = beside(path);
    let written = write(store, id, format, path, &part).await;
    if written.is_err() {
        // What could not be written as a whole is of no use; that it stays is no further failure.
        let _gone = std::fs::remove_file(&part);
    }
    written
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

async fn write(
    store: &SessionStore,
    id: &SessionId,
    format: Format,
    path: &Path,
    part: &Path,
) -> Outcome<()> {
    let failed = |error: &io::Error| {
        Failure::new("internal", format!("{}: {error}", path.display()))
            .hint("see whether the folder exists and has space")
    };
    let mut file = File::create(part).map_err(|error| failed(&error))?;
    let mut take = |piece: String| file.write_all(piece.as_bytes());
    match threadline_server::export(store, id, format, &mut take).await {
        Ok(()) => {}
        Err(ExportError::Read(error)) => return Err(error.into()),
        Err(ExportError::Write(error)) => return Err(failed(&error)),
    }
    let ended = file.sync_all().and_then(|()| std::fs::rename(part, path));
    ended.map_err(|error| failed(&error))
}
