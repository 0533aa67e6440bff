//! Servers that are programs: started in the session's folder, tied to the agent's life, bounded
//! in what they can make it hold.

use std::{
    ffi::OsString,
    io,
    path::Path,
    pin::Pin,
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use threadline_agent::tools::{Companion, CompanionPipes};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, ReadBuf},
    process::{ChildStderr, ChildStdin, ChildStdout},
    task::JoinHandle,
};

use crate::{
    ServerName, Transport,
    config::{expand, own_variable},
    limits::{MESSAGE_BYTES, STDERR_BYTES, STDERR_LINE_BYTES},
    problem::{Problem, short},
};

/// What is known of the end of a server, and what it said last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Why the connection was ended from this side.
    ended: Option<&'static str>,
    last_line: Option<String>,
}

impl Words {
    fn with<T>(&self, work: impl FnOnce(&mut Said) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn ended(&self) -> Option<&'static str> {
        self.with(|said| said.ended)
    }

    pub(crate) fn last_line(&self) -> Option<String> {
        self.with(|said| said.last_line.clone())
    }
}

/// A server's process and the streams to it.
pub(crate) struct Started {
    pub(crate) companion: Companion,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: Bounded<ChildStdout>,
    pub(crate) words: Words,
    /// Ends when the server says nothing more for people.
    pub(crate) listener: JoinHandle<()>,
}

/// Starts the program of a server.
pub(crate) async fn start(
    name: &ServerName,
    transport: &Transport,
    session_cwd: &Path,
) -> Result<Started, Problem> {
    let Transport::Stdio {
        command,
        args,
        env,
        cwd,
    } = transport
    else {
        return Err(Problem::new("it is no program"));
    };
    let mut command_line: Vec<OsString> = vec![command.into()];
    command_line.extend(args.iter().map(OsString::from));
    // The list that commands have, and what the person set for this server, secrets included.
    let mut variables = threadline_sandbox::environment(
        std::env::vars_os(),
        &threadline_sandbox::Passed::default(),
        &[],
        None,
    );
    for (name, value) in env {
        let value = expand(value, &own_variable)?;
        variables.retain(|(held, _)| held != name.as_str());
        variables.push((name.into(), value.into()));
    }
    let cwd = cwd
        .as_ref()
        .map_or_else(|| session_cwd.to_owned(), |cwd| session_cwd.join(cwd));
    if !cwd.is_dir() {
        return Err(Problem::new("the folder it works in does not exist"));
    }
    let (companion, pipes) = Companion::start(command_line, &cwd, variables)
        .await
        .map_err(|error| Problem::new(format!("its program cannot be started: {error}")))?;
    let CompanionPipes {
        stdin,
        stdout,
        stderr,
    } = pipes;
    let words = Words::default();
    let listener = tokio::spawn(listen(name.clone(), stderr, words.clone()));
    Ok(Started {
        companion,
        stdin,
        stdout: Bounded::new(stdout, words.clone()),
        words,
        listener,
    })
}

/// Says how a process ended.
pub(crate) fn ending(command: &Transport, status: Option<ExitStatus>) -> String {
    let code = status.and_then(|status| status.code());
    match (code, command) {
        (Some(126 | 127), Transport::Stdio { command, .. }) => {
            format!("there is no program `{command}` that can be run")
        }
        (Some(code), _) => format!("its program ended with the exit code {code}"),
        (None, _) => "its program was ended".to_owned(),
    }
}

/// Logs what a server says for people, as far as there is room for it, and keeps its last line.
async fn listen(name: ServerName, mut stderr: ChildStderr, words: Words) {
    let mut room = STDERR_BYTES;
    let mut line: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 4 * 1024];
    loop {
        let read = stderr.read(&mut buffer).await.unwrap_or(0);
        let ended = read == 0;
        let mut pieces = buffer[..read].split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let left = STDERR_LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&piece[..piece.len().min(left)]);
            if pieces.peek().is_none() && !ended {
                break;
            }
            let said = short(&String::from_utf8_lossy(&line));
            line.clear();
            if said.is_empty() {
                continue;
            }
            if let Some(left) = room.checked_sub(said.len()) {
                room = left;
                tracing::debug!(server = %name, "{said}");
            }
            words.with(|words| words.last_line = Some(said));
        }
        if ended {
            return;
        }
    }
}

/// Fails instead of giving on a line that is too long to be held.
pub(crate) struct Bounded<R> {
    inner: R,
    line: usize,
    words: Words,
}

impl<R> Bounded<R> {
    fn new(inner: R, words: Words) -> Self {
        Self {
            inner,
            line: 0,
            words,
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let fresh = buf.filled().get(before..).unwrap_or_default();
        let mut longest = 0;
        for (at, piece) in fresh.split(|byte| *byte == b'\n').enumerate() {
            self.line = if at == 0 { self.line } else { 0 } + piece.len();
            longest = longest.max(self.line);
        }
        if longest > MESSAGE_BYTES {
            const WHY: &str = "it sent a message that is too long";
            self.words.with(|said| said.ended = Some(WHY));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, WHY)));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_at_the_limit_passes_and_one_past_it_does_not() {
        for (length, passes) in [(MESSAGE_BYTES, true), (MESSAGE_BYTES + 1, false)] {
            let mut text = b"short\n".to_vec();
            text.resize(text.len() + length, b'x');
            text.push(b'\n');
            let words = Words::default();
            let mut bounded = Bounded::new(text.as_slice(), words.clone());
            let mut buffer = vec![0; 1000];
            let read = loop {
                match bounded.read(&mut buffer).await {
                    Ok(0) => break Ok(()),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            assert_eq!((read.is_ok(), words.ended().is_none()), (passes, passes));
        }
    }
}
