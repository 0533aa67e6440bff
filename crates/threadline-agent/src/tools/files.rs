//! The one way of the file tools to the text of a file: on disk, or in the client that drives the
//! session, which may hold changes that are not saved.
//!
//! The rules of paths are always ours and go first. Who gave a text takes the changed one: what
//! the client holds is never changed behind its back, and never replaced by a tool that has not
//! seen it (ADR 21).

use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use threadline_model::Images;
use threadline_session::payload::Outcome;

use super::client::{ClientError, ClientFiles};
use super::file::{self, Replaced};
use super::paths::{Access, PathRules};
use super::text::{printable, shorten};
use super::{ToolContext, ToolOutput, failed};
use crate::limits::{CLIENT_REASON_BYTES, FILE_BYTES, SEEN_TEXTS, SNIFF_BYTES};

/// The texts of files as the tools of one run see them. By default those on disk.
#[derive(Debug, Clone, Default)]
pub struct Files(Option<Arc<Lent>>);

#[derive(Debug)]
struct Lent {
    client: Arc<dyn ClientFiles>,
    /// What this run was shown of texts that are not on disk.
    seen: Mutex<HashMap<PathBuf, blake3::Hash>>,
}

impl Files {
    /// Makes those that a client holds.
    #[must_use]
    pub fn lent(client: Arc<dyn ClientFiles>) -> Self {
        Self(Some(Arc::new(Lent {
            client,
            seen: Mutex::default(),
        })))
    }
}

/// A file as a call names it, and what the rules say it is.
pub(crate) struct Named<'a> {
    pub(crate) given: &'a str,
    pub(crate) target: &'a Path,
    pub(crate) rules: &'a PathRules,
    pub(crate) access: Access,
}

impl Named<'_> {
    fn shown(&self) -> String {
        printable(self.given).into_owned()
    }

    /// Returns the path as the client knows it: the folder that it has named may be a link.
    fn for_client(&self, ctx: &ToolContext) -> PathBuf {
        match self.target.strip_prefix(self.rules.root()) {
            Ok(rest) => std::path::absolute(&ctx.cwd)
                .map_or_else(|_| self.target.to_owned(), |cwd| cwd.join(rest)),
            Err(_) => self.target.to_owned(),
        }
    }

    /// The client follows links by itself, so it is looked before and after whether there is one.
    fn stands(&self) -> bool {
        let now = self.rules.resolve(Path::new(self.given), self.access);
        now.is_ok_and(|now| now == self.target)
    }
}

/// Who takes the changed text of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Disk,
    Client,
}

/// A text file as it stands.
#[derive(Debug)]
pub(crate) struct Held {
    /// The text; none when there is no such file.
    pub(crate) text: Option<String>,
    pub(crate) holder: Holder,
    /// Whether the client holds changes that are not on disk.
    pub(crate) unsaved: bool,
    /// What is on disk, when that differs from the text in any byte.
    pub(crate) disk: Option<Option<String>>,
    /// What the model is to know of whose text it is.
    pub(crate) note: Option<String>,
}

impl Held {
    pub(crate) fn on_disk(text: Option<String>) -> Self {
        Self {
            text,
            holder: Holder::Disk,
            unsaved: false,
            disk: None,
            note: None,
        }
    }
}

/// Whose text `read` shows.
pub(crate) enum Source {
    Disk { note: Option<String> },
    Client { text: String, note: Option<String> },
}

/// Why what is on disk is not asked for at the client.
enum NotText {
    /// An image, or something binary.
    Other,
    TooLong,
    NotUtf8,
    Unreadable,
}

impl Files {
    fn reader(&self) -> Option<&Lent> {
        self.0.as_deref().filter(|lent| lent.client.reads())
    }

    fn writes(&self) -> bool {
        self.0.as_ref().is_some_and(|lent| lent.client.writes())
    }

    /// Returns whether a client holds any texts.
    pub(crate) fn are_lent(&self) -> bool {
        self.reader().is_some() || self.writes()
    }

    /// Returns the text to show of a file.
    pub(crate) fn source(&self, ctx: &ToolContext, file: &Named<'_>) -> Result<Source, ToolOutput> {
        let plain = |note: Option<String>| Ok(Source::Disk { note });
        let Some(lent) = self.reader() else {
            return plain(None);
        };
        let disk = match on_disk(file.target) {
            Ok(disk) => disk,
            // Said by whoever reads it from there.
            Err(NotText::Other | NotText::Unreadable) => return plain(None),
            Err(NotText::TooLong) => {
                return plain(Some(format!(
                    "this is the file on disk: it has more than {FILE_BYTES} bytes, so the editor \
                     was not asked for its text"
                )));
            }
            Err(NotText::NotUtf8) => {
                return plain(Some(
                    "this is the file on disk: it is not UTF-8 text, so the editor was not asked \
                     for its text"
                        .into(),
                ));
            }
        };
        match lent.ask(ctx, file) {
            Ok(text) if text.len() > FILE_BYTES => plain(Some(format!(
                "this is the file on disk: its text in the editor has more than {FILE_BYTES} bytes"
            ))),
            Ok(text) if disk.is_none() && text.is_empty() => plain(None),
            Ok(text) => {
                let unsaved = !disk.is_some_and(|disk| same(&disk, &text));
                lent.note_seen(file.target, &text);
                let note = unsaved.then(|| {
                    "this is the text in the editor, which is not saved; commands, `grep` and \
                     `find` see what is on disk"
                        .into()
                });
                Ok(Source::Client { text, note })
            }
            // Of a file that is not there, no text is what is to be expected.
            Err(ClientError::Refused { .. }) if disk.is_none() => plain(None),
            Err(ClientError::Cancelled) => Err(ToolOutput::cancelled()),
            Err(error) => plain(Some(format!(
                "this is the file on disk; the editor was asked for its text, and {}",
                reason(&error)
            ))),
        }
    }

    /// Returns a text file that is to be changed, given what is on disk.
    pub(crate) fn held(
        &self,
        ctx: &ToolContext,
        file: &Named<'_>,
        disk: Option<String>,
    ) -> Result<Held, ToolOutput> {
        let Some(lent) = self.reader() else {
            // One that cannot be asked what it holds takes what was made of the text on disk.
            let holder = if self.writes() {
                Holder::Client
            } else {
                Holder::Disk
            };
            return Ok(Held {
                holder,
                ..Held::on_disk(disk)
            });
        };
        let name = file.shown();
        match lent.ask(ctx, file) {
            Ok(text) if text.len() > FILE_BYTES => Err(ToolOutput::error(format!(
                "`{name}` has more than {FILE_BYTES} bytes in the editor, too many for a tool; \
                 nothing was changed"
            ))),
            // Some clients have an empty text for what is not there.
            Ok(text) if disk.is_none() && text.is_empty() => Ok(Held {
                holder: Holder::Client,
                ..Held::on_disk(None)
            }),
            Ok(text) => {
                let unsaved = !disk.as_ref().is_some_and(|disk| same(disk, &text));
                let differs = disk.as_ref() != Some(&text);
                Ok(Held {
                    text: Some(text),
                    holder: Holder::Client,
                    unsaved,
                    disk: differs.then_some(disk),
                    note: None,
                })
            }
            Err(ClientError::Refused { .. }) if disk.is_none() => Ok(Held {
                holder: Holder::Client,
                ..Held::on_disk(None)
            }),
            Err(error @ ClientError::Refused { .. }) => Ok(Held {
                note: Some(format!(
                    "changed on disk: the editor was asked for the text of `{name}`, and {}",
                    reason(&error)
                )),
                ..Held::on_disk(disk)
            }),
            Err(ClientError::Cancelled) => Err(ToolOutput::cancelled()),
            Err(error @ ClientError::Unclear { .. }) => Err(ToolOutput::error(format!(
                "the editor, which may hold changes of `{name}` that are not saved, was asked for \
                 its text, and {}; nothing was changed",
                reason(&error)
            ))),
        }
    }

    /// Refuses to replace or delete what a person has typed and this run has not seen.
    pub(crate) fn not_blindly(&self, file: &Named<'_>, held: &Held) -> Result<(), ToolOutput> {
        let (Some(text), Some(lent)) = (&held.text, &self.0) else {
            return Ok(());
        };
        if !held.unsaved || lent.has_seen(file.target, text) {
            return Ok(());
        }
        let name = file.shown();
        Err(ToolOutput::error(format!(
            "`{name}` has changes in the editor that are not saved and that you have not seen in \
             this turn; `read` it first, or let the person save it; nothing was changed"
        )))
    }

    /// Returns whether the client takes the new text of a file; an error when nobody can without
    /// losing what is not saved.
    pub(crate) fn taken_by_client(
        &self,
        file: &Named<'_>,
        held: &Held,
    ) -> Result<bool, ToolOutput> {
        if held.holder == Holder::Disk {
            return Ok(false);
        }
        if self.writes() {
            return Ok(true);
        }
        if !held.unsaved {
            return Ok(false);
        }
        let name = file.shown();
        Err(ToolOutput::error(format!(
            "`{name}` has changes in the editor that are not saved, and the editor takes no text; \
             let the person save it; nothing was changed"
        )))
    }

    /// Puts a text in the place of another, through whoever holds it. Returns whether there was
    /// one, and what the model is to know besides.
    pub(crate) fn put(
        &self,
        ctx: &ToolContext,
        file: &Named<'_>,
        held: &Held,
        after: &str,
    ) -> Result<(Replaced, Option<String>), ToolOutput> {
        let on_disk = |note: Option<String>| {
            file::replace(file.target, after.as_bytes())
                .map(|replaced| (replaced, note))
                .map_err(|error| failed("write", file.given, &error))
        };
        if !self.taken_by_client(file, held)? {
            return on_disk(held.note.clone());
        }
        let replaced = match held.text {
            Some(_) => Replaced::Old,
            None => Replaced::New,
        };
        match self.send(ctx, file, held, after) {
            Ok(note) => Ok((replaced, note)),
            Err(Unsent::Refused(why)) if replaced == Replaced::New => on_disk(Some(format!(
                "written on disk: the editor was asked to make `{}`, and {why}",
                file.shown()
            ))),
            Err(unsent) => Err(unsent.output(file)),
        }
    }

    /// Has the client write a text.
    pub(crate) fn send(
        &self,
        ctx: &ToolContext,
        file: &Named<'_>,
        held: &Held,
        after: &str,
    ) -> Result<Option<String>, Unsent> {
        let Some(lent) = &self.0 else {
            return Err(Unsent::Refused("there is none".into()));
        };
        if held.text.is_none() {
            let parent = file.target.parent().unwrap_or(file.target);
            file::open_folder_creating(parent).map_err(Unsent::Disk)?;
        }
        file::may_change(file.target).map_err(Unsent::Disk)?;
        if !file.stands() {
            return Err(Unsent::Moved { sent: false });
        }
        lent.write(ctx, file, after).map_err(|error| match error {
            ClientError::Refused { .. } => Unsent::Refused(reason(&error)),
            error => Unsent::Unclear(reason(&error)),
        })?;
        if !file.stands() {
            return Err(Unsent::Moved { sent: true });
        }
        lent.note_seen(file.target, after);
        let saved = matches!(on_disk(file.target), Ok(Some(disk)) if same(&disk, after));
        Ok((!saved).then(|| {
            format!(
                "the editor has it, but `{}` on disk is not the same: it is not saved yet, or the \
                 editor has changed it; commands see what is on disk",
                file.shown()
            )
        }))
    }

    /// Has the client write again what it held before. Whether the call was cancelled does not
    /// matter here.
    pub(crate) fn take_back(&self, ctx: &ToolContext, file: &Named<'_>, before: &str) -> bool {
        let uncancelled = ToolContext {
            cancel: tokio_util::sync::CancellationToken::new(),
            ..ctx.clone()
        };
        let Some(lent) = &self.0 else {
            return false;
        };
        file.stands() && lent.write(&uncancelled, file, before).is_ok()
    }
}

/// Why a client does not hold a text that it was to take.
pub(crate) enum Unsent {
    /// It has done nothing.
    Refused(String),
    /// Nobody knows what it has done.
    Unclear(String),
    /// The disk does not allow it, so the client was not asked.
    Disk(io::Error),
    /// The path has come to lead elsewhere.
    Moved { sent: bool },
}

impl Unsent {
    /// Tells it of a file that is the only one.
    pub(crate) fn output(self, file: &Named<'_>) -> ToolOutput {
        let name = file.shown();
        match self {
            Self::Refused(why) => ToolOutput::error(format!(
                "the editor, which holds `{name}`, was asked to write it, and {why}; nothing was \
                 changed"
            )),
            Self::Unclear(why) => ToolOutput::new(
                Outcome::Unknown,
                format!(
                    "the editor was asked to write `{name}`, and {why}; whether it has is not \
                     known: `read` it before you go on"
                ),
            ),
            Self::Disk(error) => failed("write", file.given, &error),
            Self::Moved { sent: false } => ToolOutput::error(format!(
                "`{name}` has come to lead elsewhere while it was looked at; nothing was changed"
            )),
            Self::Moved { sent: true } => ToolOutput::new(
                Outcome::Unknown,
                format!(
                    "`{name}` has come to lead elsewhere while the editor wrote it; where the text \
                     is now is not known"
                ),
            ),
        }
    }
}

impl Lent {
    fn ask(&self, ctx: &ToolContext, file: &Named<'_>) -> Result<String, ClientError> {
        let path = file.for_client(ctx);
        let text = wait(self.client.read(&path, &ctx.cancel))?;
        if !file.stands() {
            return Err(ClientError::Unclear {
                reason: "the path has come to lead elsewhere meanwhile".into(),
            });
        }
        Ok(text)
    }

    fn write(&self, ctx: &ToolContext, file: &Named<'_>, text: &str) -> Result<(), ClientError> {
        let path = file.for_client(ctx);
        wait(self.client.write(&path, text, &ctx.cancel))
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<PathBuf, blake3::Hash>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_seen(&self, target: &Path, text: &str) {
        let mut seen = self.seen();
        if seen.len() >= SEEN_TEXTS && !seen.contains_key(target) {
            // What is forgotten is read again, no more.
            seen.clear();
        }
        seen.insert(target.to_owned(), blake3::hash(text.as_bytes()));
    }

    fn has_seen(&self, target: &Path, text: &str) -> bool {
        self.seen().get(target) == Some(&blake3::hash(text.as_bytes()))
    }
}

/// File work runs off the async threads, so it may wait.
fn wait<T>(answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    match tokio::runtime::Handle::try_current() {
        Ok(handle) => handle.block_on(answer),
        Err(_) => Err(ClientError::Unclear {
            reason: "there is nothing that could wait for it".into(),
        }),
    }
}

fn reason(error: &ClientError) -> String {
    shorten(&printable(&error.to_string()), CLIENT_REASON_BYTES)
}

/// Editors hold texts with line feeds only, and without a byte order mark, whatever is on disk.
fn same(disk: &str, held: &str) -> bool {
    let plain = |text: &str| {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        text.replace("\r\n", "\n")
    };
    disk == held || plain(disk) == plain(held)
}

/// Returns the text of a file on disk; nothing when there is none.
fn on_disk(target: &Path) -> Result<Option<String>, NotText> {
    let file: File = match file::open_regular(target) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err(NotText::Unreadable),
    };
    let mut bytes = Vec::new();
    let most = FILE_BYTES as u64 + 1;
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|_| NotText::Unreadable)?;
    let start = bytes.get(..SNIFF_BYTES).unwrap_or(&bytes);
    if start.contains(&0) || (Images::is_image(start) && std::str::from_utf8(&bytes).is_err()) {
        return Err(NotText::Other);
    }
    if bytes.len() > FILE_BYTES {
        return Err(NotText::TooLong);
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| NotText::NotUtf8)
}

/// Returns the text that `write` replaces, or why it is none that an editor holds.
pub(crate) fn text_to_replace(target: &Path) -> Result<Option<String>, &'static str> {
    on_disk(target).map_err(|why| match why {
        NotText::Other => "what was there is binary",
        NotText::TooLong => "what was there is too long for an editor to be asked",
        NotText::NotUtf8 => "what was there is not UTF-8 text",
        NotText::Unreadable => "what is there cannot be read",
    })
}
