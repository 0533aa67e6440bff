//! The command line.

use std::{num::NonZeroU64, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use threadline_agent::policy::CommandPrefix;
use threadline_session::payload::{ApprovalPolicy, SandboxMode};
use threadline_store::SessionStatus;

use crate::settings::LimitsFile;

const AFTER_HELP: &str = "\
Examples:
  threadline                         pick a session, in the terminal
  threadline run \"explain this folder\"
  threadline resume --last

Exit codes:
    0  completed
    1  failed
    2  usage: an argument, the configuration or a missing key
    3  session not found
    4  locked by another writer
    5  damaged, or of an unsupported format
    6  approval needed and nobody to ask
    7  storage full
  130  cancelled

Environment:
  THREADLINE_HOME   where sessions are kept [default: $XDG_DATA_HOME/threadline]
  THREADLINE_LOG    what is logged to standard error, e.g. `debug` [default: warn]
  OPENAI_API_KEY    key of the providers openai-chat and openai-responses
  OPENAI_BASE_URL   base URL of the providers openai-chat and openai-responses
  ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
                    the same of the provider anthropic
  NO_COLOR          no colour, also on a terminal

Settings are read from $XDG_CONFIG_HOME/threadline/config.toml.";

/// Run agent sessions that survive everything
#[derive(Debug, Parser)]
#[command(name = "threadline", version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Left out at a terminal, the picker of sessions is shown.
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Common {
    /// Where sessions are kept: `jsonl:DIR` or a directory, `sqlite:FILE`, `postgres://…`
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) store: Option<String>,
    /// Provider: `offline`, `openai-chat`, `openai-responses` or `anthropic`
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Base URL of the provider, e.g. `http://127.0.0.1:11434/v1`
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Model: `NAME`, or `PROVIDER/NAME`
    #[arg(long, global = true, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Tokens that the model takes at once; before they are used up, the history is compacted
    #[arg(long, global = true, value_name = "N")]
    pub(crate) context_tokens: Option<NonZeroU64>,
    /// Send spans of runs to this OpenTelemetry collector (OTLP over HTTP)
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) otlp: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve the web page and the HTTP API
    Serve(Serve),
    /// Run one turn of a new or an existing session
    Run(Box<Run>),
    /// Pick a session, or go on with one, in the terminal
    Resume(Resume),
    /// Speak the Agent Client Protocol on standard input and output, for an editor that starts it
    Acp(Acp),
    /// List sessions, newest activity first
    Ls(Ls),
    /// Show a session by turns
    Show(Show),
    /// Write a session to a file: its log, Markdown, or one page of HTML
    Export(Export),
    /// Check every record of a session's log
    Verify(Verify),
    /// Run the agent loop again over a session's log, in memory, and compare
    Replay(Replay),
    /// Replace the older part of a session's history by a summary
    Compact(Compact),
    /// Branch: make a session that has another's events up to one, and goes its own way from there
    Fork(Fork),
    /// Go back: move a session's history to right after one of its events
    Rewind(Rewind),
    /// Take the last rewind back
    Redo(Redo),
    /// Mend a damaged log: keep every valid record, and say what is lost
    Repair(Repair),
    /// Show how much space sessions take up, largest first
    Du(Du),
    /// Remove blobs that no session names
    Gc(Gc),
    /// Move sessions between stores
    #[command(subcommand)]
    Store(StoreVerb),
    /// Look at the MCP servers whose tools sessions have
    #[command(subcommand)]
    Mcp(McpVerb),
    /// Show what is approved for the rest of a session, add to it, and revoke it
    Grants(Grants),
    /// Give a session a title
    #[command(after_help = "Example: threadline rename 019ad2c4 \"release notes\"")]
    Rename {
        /// Session: id, beginning of an id, or title
        id: String,
        /// Title; an empty one removes it
        title: String,
    },
    /// Put a session away
    #[command(after_help = "Example: threadline archive 019ad2c4")]
    Archive {
        /// Session: id, beginning of an id, or title
        id: String,
    },
    /// Take a session out again
    #[command(after_help = "Example: threadline unarchive 019ad2c4")]
    Unarchive {
        /// Session: id, beginning of an id, or title
        id: String,
    },
    /// Delete a session for good
    #[command(after_help = "Example: threadline rm 019ad2c4 --yes")]
    Rm {
        /// Session: id, beginning of an id, or title
        id: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Tell what is stored, what is wrong with it, and what opening it would do
    #[command(after_help = "Example: threadline doctor 019ad2c4")]
    Doctor {
        /// Session: id, beginning of an id, or title; all when left out
        id: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Print a completion script for a shell
    #[command(after_help = "Example: threadline completions bash > \
                            ~/.local/share/bash-completion/completions/threadline")]
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Print the manual page, or write those of all verbs
    #[command(
        after_help = "Example: threadline man --out ~/.local/share/man/man1\n         \
                            threadline man | man -l -"
    )]
    Man {
        /// Directory to write the pages of all verbs into
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Show every setting that holds, and where it comes from; secrets are masked
    Show(ConfigShow),
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline config show --json")]
pub(crate) struct ConfigShow {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline serve --open")]
pub(crate) struct Serve {
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4870")]
    pub(crate) listen: String,
    /// Open the page in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Token that every request needs; a random one otherwise
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Host name that requests may be addressed to, besides the address itself
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: threadline acp --model openai-chat/NAME --approval on_request\n\n\
                  An editor starts it so; docs/acp.md has the lines for its settings. Standard \
                  output carries the protocol alone, and what is logged goes to standard error."
)]
pub(crate) struct Acp {
    /// When new sessions ask before a tool runs
    #[arg(long, value_name = "POLICY")]
    pub(crate) approval: Option<Approval>,
    /// What tools may touch in new sessions
    #[arg(long, value_name = "MODE")]
    pub(crate) sandbox: Option<Sandbox>,
}

#[derive(Debug, Default, Args)]
#[command(
    after_help = "Examples: threadline run \"fix the failing test\"\n          \
                  threadline run --last \"now the documentation\"\n          \
                  git diff | threadline run --json --approval never -\n\n\
                  The answer goes to standard output, everything else to standard error. SIGTERM, \
                  SIGHUP and Ctrl-C end the turn as cancelled, with everything stored."
)]
pub(crate) struct Run {
    /// Task; read from standard input when left out or `-`
    pub(crate) task: Option<String>,
    /// Go on with this session: id, beginning of an id, or title
    #[arg(long, value_name = "ID", conflicts_with = "last")]
    pub(crate) session: Option<String>,
    /// Go on with the session of this directory that was active last; if there is none, with that
    /// of another one, which is said
    #[arg(long)]
    pub(crate) last: bool,
    /// Run in a new session that has the events of this one, up to SEQ if given
    #[arg(long, value_name = "ID[@SEQ]", conflicts_with_all = ["session", "last"], value_parser = fork_point)]
    pub(crate) fork: Option<ForkPoint>,
    /// Take the session over from a process that writes it
    #[arg(long, conflicts_with = "fork")]
    pub(crate) take_over: bool,
    /// Print every event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// When to ask before a tool runs
    #[arg(long, value_name = "POLICY")]
    pub(crate) approval: Option<Approval>,
    /// What tools may touch
    #[arg(long, value_name = "MODE")]
    pub(crate) sandbox: Option<Sandbox>,
    /// Commands of the shell that run unasked, by the words they begin with, as in `cargo test`;
    /// may be named several times, and holds for the session
    #[arg(long, value_name = "WORDS", value_parser = prefix)]
    pub(crate) allow: Vec<CommandPrefix>,
    /// Working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: LimitsFile,
    /// Sampling temperature, 0 to 2
    #[arg(long, value_name = "T", value_parser = temperature)]
    pub(crate) temperature: Option<f64>,
    /// Image that belongs to the task: PNG, JPEG, GIF or WebP; may be named several times
    #[arg(long, value_name = "PATH")]
    pub(crate) image: Vec<PathBuf>,
    /// What the task is good for
    #[arg(long, value_name = "TEXT")]
    pub(crate) goal: Option<String>,
    /// What the model should know besides
    #[arg(long, value_name = "TEXT")]
    pub(crate) context: Option<String>,
    /// A repeat of the same key runs nothing and gives the first run again
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(after_help = "Example: threadline resume\n         \
                  threadline resume 019ad2c4\n         \
                  threadline resume --last\n\n\
                  Keys and commands are shown by F1; docs/terminal.md has all of them.")]
pub(crate) struct Resume {
    /// Session: id, beginning of an id, or title; a picker is shown when left out
    #[arg(conflicts_with = "last")]
    pub(crate) id: Option<String>,
    /// Go on with the session of this directory that was active last; if there is none, with that
    /// of another one, which is said
    #[arg(long)]
    pub(crate) last: bool,
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=2.0).contains(&value) => Ok(value),
        _ => Err("it is a number from 0 to 2".into()),
    }
}

fn prefix(text: &str) -> Result<CommandPrefix, String> {
    CommandPrefix::parse(text).map_err(|error| error.to_string())
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: threadline grants 019ad2c4 --allow \"cargo test\"\n         \
                  threadline grants 019ad2c4 --revoke 019ad2c8\n\n\
                  Words of a shell, an interpreter or a wrapper alone are not taken, because they \
                  would allow anything. A rewind takes back what was approved after its point, and \
                  no redo gives that back."
)]
pub(crate) struct Grants {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// Approve commands of the shell by the words they begin with; may be named several times
    #[arg(long, value_name = "WORDS", value_parser = prefix)]
    pub(crate) allow: Vec<CommandPrefix>,
    /// Revoke a grant: its id, or the beginning of it; may be named several times
    #[arg(long, value_name = "GRANT")]
    pub(crate) revoke: Vec<String>,
    /// Take the session over from a process that writes it
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A session and, behind an `@`, one of its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForkPoint {
    pub(crate) id: String,
    pub(crate) at: Option<u64>,
}

#[expect(clippy::unnecessary_wraps, reason = "clap asks for a result")]
fn fork_point(text: &str) -> Result<ForkPoint, String> {
    let whole = || ForkPoint {
        id: text.to_owned(),
        at: None,
    };
    // What follows an `@` in a title is no number.
    Ok(match text.rsplit_once('@') {
        Some((id, at)) => at.parse().map_or_else(
            |_| whole(),
            |at| ForkPoint {
                id: id.to_owned(),
                at: Some(at),
            },
        ),
        None => whole(),
    })
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline fork 019ad2c4 --at 41\n         \
                  threadline fork 019ad2c4 --before-compaction")]
pub(crate) struct Fork {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// Last event that both have; the last one there is when left out
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
    /// Fork right before the last compaction in force, with the whole history
    #[arg(long, conflicts_with = "at")]
    pub(crate) before_compaction: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a session is exported as.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The lines of its log as they are stored
    Jsonl,
    /// Text for people
    Markdown,
    /// One page without scripts, images inside
    Html,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline export 019ad2c4 --format html -o session.html")]
pub(crate) struct Export {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// What it is written as
    #[arg(long, value_enum, default_value = "jsonl")]
    pub(crate) format: ExportFormat,
    /// File to write; standard output by default, and with `-`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline replay 019ad2c4\n\n\
                  The model and the tools answer what the log says they did; nothing is asked, run \
                  or written. It ends with 0 when every request and event is the log's, and with 1 \
                  when one is not.")]
pub(crate) struct Replay {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline compact 019ad2c4\n\n\
                  Nothing is removed from the log; `threadline fork ID --before-compaction` goes on \
                  with the whole history. It is the same as running the task `/compact`.")]
pub(crate) struct Compact {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// Take the session over from a process that writes it
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print every event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("target").required(true),
    after_help = "Example: threadline rewind 019ad2c4 --turns 1\n\n\
                  Nothing is removed from the log, and `threadline redo` takes it back. What tools \
                  did, as to files, is not undone."
)]
pub(crate) struct Rewind {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// Event after which the history goes on
    #[arg(long, value_name = "SEQ", group = "target")]
    pub(crate) to: Option<u64>,
    /// Number of turns to go back
    #[arg(long, value_name = "N", group = "target", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) turns: Option<u64>,
    /// Take the session over from a process that writes it
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline redo 019ad2c4")]
pub(crate) struct Redo {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// Take the session over from a process that writes it
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline repair 019ad2c4 --dry-run\n\n\
                        The log as it was is kept in the session's quarantine folder.")]
pub(crate) struct Repair {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// Only say what would be kept and lost
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline du --limit 5")]
pub(crate) struct Du {
    /// Session: id, beginning of an id, or title; all when left out
    pub(crate) id: Option<String>,
    /// Most sessions to show; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline gc --dry-run\n\n\
                        A blob that was put within the last day is never removed.")]
pub(crate) struct Gc {
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Copy sessions into another store, byte for byte
    Copy(Copy),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: threadline store copy jsonl:/data/threadline sqlite:/data/all.db\n\n\
                  What is there already stays; a session that has grown since is caught up with. \
                  So it can be repeated at any time, also after it was broken off."
)]
pub(crate) struct Copy {
    /// Store to read: `jsonl:DIR`, `sqlite:FILE` or `postgres://…`
    pub(crate) from: String,
    /// Store to copy into
    pub(crate) to: String,
    /// Sessions: ids, beginnings of ids, or titles; all when left out
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpVerb {
    /// Connect to each server, and tell its tools or why it is missing
    List(McpList),
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline mcp list --json\n\n\
                  Servers are configured in config.toml as `[mcp.NAME]`.")]
pub(crate) struct McpList {
    /// Folder that the servers are started in
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline ls --status interrupted")]
pub(crate) struct Ls {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also list archived sessions
    #[arg(long)]
    pub(crate) all: bool,
    /// List archived sessions only
    #[arg(long, conflicts_with = "all")]
    pub(crate) archived: bool,
    /// List only sessions that stand so
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<Standing>,
    /// List only the forks of this session: id, beginning of an id, or title
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Words, each of them in title, first prompt or a tag, or what the id begins with
    #[arg(long, value_name = "WORDS")]
    pub(crate) query: Option<String>,
    /// Most sessions to list; 0 lists all
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline show 019ad2c4\n         \
                  threadline show 019ad2c4 --request 3")]
pub(crate) struct Show {
    /// Session: id, beginning of an id, or title
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show what the model would be sent: its history, item by item
    #[arg(long, conflicts_with_all = ["request", "raw"])]
    pub(crate) history: bool,
    /// Show the request of a step, rebuilt from the log
    #[arg(long, value_name = "STEP", conflicts_with = "raw")]
    pub(crate) request: Option<u64>,
    /// Print the log's lines as they are stored
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: threadline verify --all --requests\n\n\
                  Every checksum, number and link of the log is checked, at more than 1 GB a \
                  second. Rebuilding the requests takes about a minute per GB.")]
pub(crate) struct Verify {
    /// Session: id, beginning of an id, or title
    #[arg(conflicts_with = "all")]
    pub(crate) id: Option<String>,
    /// Check all sessions
    #[arg(long)]
    pub(crate) all: bool,
    /// Also rebuild the request of every step from the log, and compare it with what was sent
    #[arg(long)]
    pub(crate) requests: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the last chain value; keep it elsewhere to notice a log that was cut or rolled back
    #[arg(long)]
    pub(crate) head: bool,
}

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Standing {
    /// No turn is open
    Idle,
    /// A turn is under way
    Running,
    /// A turn waits for a person
    Waiting,
    /// The last turn was cut short
    Interrupted,
    /// The log is damaged
    Damaged,
    /// The log is of a version that this program cannot continue
    Unsupported,
    /// The files are gone
    Missing,
}

impl From<Standing> for SessionStatus {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Idle => Self::Idle,
            Standing::Running => Self::Running,
            Standing::Waiting => Self::Waiting,
            Standing::Interrupted => Self::Interrupted,
            Standing::Damaged => Self::Damaged,
            Standing::Unsupported => Self::Unsupported,
            Standing::Missing => Self::Missing,
        }
    }
}

/// When a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approval {
    /// Before every tool that is not read-only
    #[value(name = "strict")]
    Strict,
    /// Before shell commands that are not known to only read
    #[value(name = "on_request", alias = "on-request")]
    OnRequest,
    /// Never; what the sandbox forbids fails
    #[value(name = "never")]
    Never,
}

impl From<Approval> for ApprovalPolicy {
    fn from(approval: Approval) -> Self {
        match approval {
            Approval::Strict => Self::Strict,
            Approval::OnRequest => Self::OnRequest,
            Approval::Never => Self::Never,
        }
    }
}

/// What tools may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sandbox {
    /// Reading inside the working directory
    #[value(name = "read_only", alias = "read-only")]
    ReadOnly,
    /// Writing inside the working directory
    #[value(name = "workspace_write", alias = "workspace-write")]
    WorkspaceWrite,
    /// Everything you may touch yourself
    #[value(name = "danger_full_access", alias = "danger-full-access")]
    DangerFullAccess,
}

impl From<Sandbox> for SandboxMode {
    fn from(sandbox: Sandbox) -> Self {
        match sandbox {
            Sandbox::ReadOnly => Self::ReadOnly,
            Sandbox::WorkspaceWrite => Self::WorkspaceWrite,
            Sandbox::DangerFullAccess => Self::DangerFullAccess,
        }
    }
}

impl Verb {
    /// Returns whether programs read what this call prints.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Run(run) => run.json,
            Self::Ls(ls) => ls.json,
            Self::Show(show) => show.json,
            Self::Verify(verify) => verify.json,
            Self::Doctor { json, .. } => *json,
            Self::Replay(replay) => replay.json,
            Self::Compact(compact) => compact.json,
            Self::Fork(fork) => fork.json,
            Self::Rewind(rewind) => rewind.json,
            Self::Redo(redo) => redo.json,
            Self::Repair(repair) => repair.json,
            Self::Du(du) => du.json,
            Self::Gc(gc) => gc.json,
            Self::Grants(grants) => grants.json,
            Self::Store(StoreVerb::Copy(copy)) => copy.json,
            Self::Mcp(McpVerb::List(list)) => list.json,
            Self::Serve(_)
            | Self::Export(_)
            | Self::Resume(_)
            | Self::Acp(_)
            | Self::Rename { .. }
            | Self::Archive { .. }
            | Self::Unarchive { .. }
            | Self::Rm { .. }
            | Self::Completions { .. }
            | Self::Man { .. } => false,
            Self::Config(ConfigVerb::Show(show)) => show.json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_status_is_asked_for_by_the_word_that_lists_show() {
        for standing in Standing::value_variants() {
            let word = standing.to_possible_value().unwrap();
            let status = serde_json::to_value(SessionStatus::from(*standing)).unwrap();
            assert_eq!(status, word.get_name());
        }
    }

    #[test]
    fn an_event_follows_the_last_at_sign() {
        let point = |text| fork_point(text).map(|point| (point.id, point.at)).unwrap();
        assert_eq!(point("019a@41"), ("019a".into(), Some(41)));
        assert_eq!(point("019a"), ("019a".into(), None));
        assert_eq!(point("me@home"), ("me@home".into(), None));
        assert_eq!(point("me@home@3"), ("me@home".into(), Some(3)));
    }
}
