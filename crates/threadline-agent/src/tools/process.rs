//! Commands whose processes end with the call, and with the agent, however it ends.
//!
//! The direct child is a small shell, the supervisor, which is outside the sandbox. It leads a
//! session and a process group of its own and starts the command inside it. When the agent dies, the kernel signals the
//! supervisor, whose trap kills the whole group and session. While the agent lives, it does so
//! itself: on cancel, on timeout, and after the command for what it left in the background.
//!
//! A process that makes a session of its own (`setsid`) is outside all of this. When the command
//! had mounts of its own, the agent knows it by them and ends it after the command; otherwise, and
//! when the agent died, it goes on, inside the sandbox.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::oneshot;

/// The arguments are the program and its arguments. A signal interrupts `wait` at once, which it
/// would not do for a command in the foreground. The trap uses builtins only, because
/// starting a program can fail when the command has used up all processes. It looks for members
/// of the session first, since job control in the command makes groups of its own. A shell gives a
/// command in the background an empty standard input unless it is handed over by another number.
const SUPERVISOR: &str = r#"
end() {
  for stat in /proc/[0-9]*/stat; do
    line=
    { read -r line <"$stat"; } 2>/dev/null
    set -- ${line##*)}
    if [ "${4-}" = "$$" ] && [ "${line%% *}" != "$$" ]; then
      kill -9 "${line%% *}" 2>/dev/null
    fi
  done
  kill -9 0
}
trap end TERM INT HUP
exec 3<&0
"$@" <&3 3<&- &
exec 3<&- </dev/null
wait "$!"
exit "$?"
"#;

/// A command that is running.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
    /// Tells the status once every process of the command is dead.
    pub(crate) exit: oneshot::Receiver<io::Result<ExitStatus>>,
    /// Ends the processes when it is dropped.
    pub(crate) group: Group,
}

/// The processes of one command.
#[derive(Debug)]
pub(crate) struct Group(Arc<Leader>);

#[derive(Debug)]
struct Leader {
    pid: Pid,
    /// Until it is set, the leader's number cannot belong to anyone else.
    reaped: Mutex<bool>,
}

impl Group {
    /// Kills every process of the group; the waiting thread sweeps up the rest of the session.
    pub(crate) fn kill(&self) {
        let reaped = lock(&self.0.reaped);
        if !*reaped {
            // It fails only when nobody is left.
            let _ = rustix::process::kill_process_group(self.0.pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns program and arguments that run a shell command.
pub(crate) fn shell(command: &str) -> Vec<OsString> {
    vec![runner().into(), "-c".into(), command.into()]
}

/// Starts a command, given as program and arguments. The mark is a path that only the mounts of
/// this command have.
pub(crate) async fn start(
    command: Vec<OsString>,
    cwd: &Path,
    env: Vec<(OsString, OsString)>,
    mark: Option<&Path>,
) -> io::Result<Running> {
    let supervisor = supervisor(command, cwd, env, Stdio::null());
    let started = on_spawner(supervisor, mark.map(Path::to_path_buf)).await?;
    Ok(Running {
        stdout: ChildStdout::from_std(started.stdout)?,
        stderr: ChildStderr::from_std(started.stderr)?,
        exit: started.exit,
        group: started.group,
    })
}

fn supervisor(
    command: Vec<OsString>,
    cwd: &Path,
    env: Vec<(OsString, OsString)>,
    stdin: Stdio,
) -> Command {
    let mut supervisor = Command::new("/bin/sh");
    supervisor
        .args(["-c", SUPERVISOR, "sh"])
        .args(command)
        .current_dir(cwd)
        .env_clear()
        .envs(env)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    tie_to_this_process(&mut supervisor);
    supervisor
}

/// A program that works beside the agent and is talked to over its standard streams. It runs
/// outside of the sandbox, leads a session and a process group of its own, and ends with the agent,
/// however that ends.
#[derive(Debug)]
pub struct Companion {
    exit: oneshot::Receiver<io::Result<ExitStatus>>,
    group: Group,
}

/// The standard streams of a [`Companion`].
#[derive(Debug)]
pub struct CompanionPipes {
    /// What it reads; dropping it is how it is asked to end.
    pub stdin: ChildStdin,
    /// What it writes.
    pub stdout: ChildStdout,
    /// What it writes for people.
    pub stderr: ChildStderr,
}

impl Companion {
    /// Starts a program, given with its arguments. It sees the environment that is named here and
    /// nothing else.
    ///
    /// # Errors
    /// When the system starts no process. A program that does not exist ends with the code 127
    /// instead.
    pub async fn start(
        command: Vec<OsString>,
        cwd: &Path,
        env: Vec<(OsString, OsString)>,
    ) -> io::Result<(Self, CompanionPipes)> {
        let supervisor = supervisor(command, cwd, env, Stdio::piped());
        let started = on_spawner(supervisor, None).await?;
        let stdin = started
            .stdin
            .ok_or_else(|| io::Error::other("the program has no standard input"))?;
        let pipes = CompanionPipes {
            stdin: ChildStdin::from_std(stdin)?,
            stdout: ChildStdout::from_std(started.stdout)?,
            stderr: ChildStderr::from_std(started.stderr)?,
        };
        let companion = Self {
            exit: started.exit,
            group: started.group,
        };
        Ok((companion, pipes))
    }

    /// Kills it with all that it started.
    pub fn kill(&self) {
        self.group.kill();
    }

    /// Waits until every process of it is dead; the status is `None` when nobody can tell it.
    /// Dropping the future loses nothing, but it must not be called again after it returned.
    pub async fn exited(&mut self) -> Option<ExitStatus> {
        (&mut self.exit).await.ok()?.ok()
    }
}

fn runner() -> &'static OsStr {
    let bash = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];
    let found = bash.into_iter().find(|path| Path::new(path).is_file());
    OsStr::new(found.unwrap_or("/bin/sh"))
}

/// Makes the child lead its own session, so that it has no terminal to ask or to be stopped by,
/// and has the kernel signal it when the thread that starts it ends.
fn tie_to_this_process(command: &mut Command) {
    let agent = rustix::process::getpid();
    let tie = move || -> io::Result<()> {
        rustix::process::setsid()?;
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        // The agent may have died before the line above, and then no signal comes.
        if rustix::process::getppid() != Some(agent) {
            return Err(Errno::SRCH.into());
        }
        Ok(())
    };
    #[expect(
        unsafe_code,
        reason = "between fork and exec only async-signal-safe work is allowed: the closure makes \
                  three plain system calls, takes no lock and allocates nothing, also on failure"
    )]
    // SAFETY: the reason above is the invariant.
    unsafe {
        command.pre_exec(tie);
    }
}

struct Started {
    stdin: Option<std::process::ChildStdin>,
    stdout: std::process::ChildStdout,
    stderr: std::process::ChildStderr,
    exit: oneshot::Receiver<io::Result<ExitStatus>>,
    group: Group,
}

/// A command to start, its mark, and where the news of it goes.
type Order = (
    Command,
    Option<PathBuf>,
    oneshot::Sender<io::Result<Started>>,
);

/// Starts a command on the one thread that lives as long as the process: the kernel takes the end
/// of the thread that forked for the end of the parent.
async fn on_spawner(command: Command, mark: Option<PathBuf>) -> io::Result<Started> {
    let (reply, started) = oneshot::channel();
    send_to_spawner((command, mark, reply))?;
    started
        .await
        .map_err(|_| io::Error::other("the thread that starts commands is gone"))?
}

fn send_to_spawner(order: Order) -> io::Result<()> {
    static SPAWNER: Mutex<Option<mpsc::Sender<Order>>> = Mutex::new(None);
    let mut slot = lock(&SPAWNER);
    let order = match slot.as_ref() {
        Some(spawner) => match spawner.send(order) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(order)) => order,
        },
        None => order,
    };
    let (spawner, orders) = mpsc::channel::<Order>();
    thread::Builder::new()
        .name("tool-spawner".into())
        .spawn(move || {
            for (command, mark, reply) in orders {
                // Nobody waits any more when the call was dropped; then dropping what was
                // started ends it.
                let _ = reply.send(spawn(command, mark));
            }
        })?;
    let sent = spawner
        .send(order)
        .map_err(|_| io::Error::other("the thread that starts commands is gone"));
    *slot = Some(spawner);
    sent
}

fn spawn(mut command: Command, mark: Option<PathBuf>) -> io::Result<Started> {
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let pipes = (child.stdout.take(), child.stderr.take());
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (Some(pid), (Some(stdout), Some(stderr))) = (pid, pipes) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(io::Error::other("the command has no number or no pipes"));
    };
    let leader = Arc::new(Leader {
        pid,
        reaped: Mutex::new(false),
    });
    // From here on a drop ends the processes.
    let group = Group(Arc::clone(&leader));
    let (tell, exit) = oneshot::channel();
    thread::Builder::new()
        .name("tool-waiter".into())
        .spawn(move || {
            // The receiver is gone when the call was dropped; the reaping matters all the same.
            let _ = tell.send(reap(&leader, child, mark.as_deref()));
        })?;
    Ok(Started {
        stdin,
        stdout,
        stderr,
        exit,
        group,
    })
}

/// Waits for the leader, ends what is left of its session and what got away from it, and only then
/// lets its number go.
fn reap(leader: &Leader, mut child: Child, mark: Option<&Path>) -> io::Result<ExitStatus> {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(Errno::INTR) = rustix::process::waitid(WaitId::Pid(leader.pid), ended) {}
    let _ = rustix::process::kill_process_group(leader.pid, Signal::KILL);
    #[cfg(target_os = "linux")]
    {
        session::sweep(|pid| session::is_alive_in(pid, leader.pid));
        if let Some(mark) = mark {
            session::sweep(|pid| session::has_mount(pid, mark));
        }
    }
    let mut reaped = lock(&leader.reaped);
    let status = child.wait();
    *reaped = true;
    status
}

#[cfg(target_os = "linux")]
mod session {
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;
    use std::thread;

    use rustix::process::{Pid, PidfdFlags, Signal};

    /// Most looks through the process table: members can start others while one goes on.
    const LOOKS: usize = 100;

    /// Kills every process that is one of them and returns when none is alive.
    pub(super) fn sweep(is_one: impl Fn(Pid) -> bool) {
        for _ in 0..LOOKS {
            let mut alive = false;
            for pid in processes() {
                if is_one(pid) {
                    alive = true;
                    kill(pid, &is_one);
                }
            }
            if !alive {
                return;
            }
            thread::yield_now();
        }
    }

    fn processes() -> impl Iterator<Item = Pid> {
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Pid::from_raw)
    }

    /// The handle is taken before the second look, so the signal cannot reach another process that
    /// was given the number meanwhile.
    fn kill(pid: Pid, is_one: &impl Fn(Pid) -> bool) {
        if let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            && is_one(pid)
        {
            let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
        }
    }

    /// Returns whether a process has mounts of its own, with one at this path among them. A dead
    /// one has no mounts.
    pub(super) fn has_mount(pid: Pid, path: &Path) -> bool {
        let of = |who: &str, what: &str| format!("/proc/{who}/{what}");
        let who = pid.as_raw_nonzero().to_string();
        let theirs = std::fs::read_link(of(&who, "ns/mnt"));
        let own = std::fs::read_link(of("self", "ns/mnt"));
        let (Ok(theirs), Ok(own)) = (theirs, own) else {
            return false;
        };
        // Most processes end here, and the table is only read of those that could be one.
        theirs != own
            && std::fs::read(of(&who, "mountinfo")).is_ok_and(|table| {
                let path = path.as_os_str().as_bytes();
                table
                    .split(|byte| matches!(byte, b' ' | b'\n'))
                    .any(|field| field == path)
            })
    }

    pub(super) fn is_alive_in(pid: Pid, session: Pid) -> bool {
        let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
        let Ok(stat) = std::fs::read(path) else {
            return false;
        };
        let stat = String::from_utf8_lossy(&stat);
        // The name in parentheses can hold anything, so what counts comes after the last one.
        let Some((_, rest)) = stat.rsplit_once(')') else {
            return false;
        };
        let mut fields = rest.split_ascii_whitespace();
        let alive = !matches!(fields.next(), None | Some("Z" | "X"));
        let member = fields.nth(2).and_then(|field| field.parse().ok());
        alive && member == Some(session.as_raw_nonzero().get())
    }
}
