//! Clocks, medians, the page cache and the memory of processes.

use std::{
    fs::File,
    path::Path,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use crate::Outcome;

/// Two things that are measured in turns.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    pub(crate) ours: Vec<f64>,
    pub(crate) raw: Vec<f64>,
}

/// Sides by the clock on the wall and by the time on processors.
#[derive(Debug, Default)]
pub(crate) struct Both {
    pub(crate) wall: Sides,
    pub(crate) cpu: Sides,
}

/// A point in time, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(Instant, f64);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(Instant::now(), cpu_seconds())
    }
}

impl Both {
    /// Ends what began at a moment.
    pub(crate) fn ours(&mut self, since: Moment) {
        self.wall.ours.push(since.0.elapsed().as_secs_f64());
        self.cpu.ours.push(cpu_seconds() - since.1);
    }

    /// Ends the other side.
    pub(crate) fn raw(&mut self, since: Moment) {
        self.wall.raw.push(since.0.elapsed().as_secs_f64());
        self.cpu.raw.push(cpu_seconds() - since.1);
    }

    /// Returns the smaller ratio. Of work that is all on processors both are the same on a quiet
    /// machine; on a busy one the clock on the wall also counts what others did.
    pub(crate) fn ratio(&self) -> f64 {
        self.wall.ratio().min(self.cpu.ratio())
    }

    /// Returns everything that was measured.
    pub(crate) fn detail(&self) -> serde_json::Value {
        serde_json::json!({
            "ours": self.wall.ours, "raw": self.wall.raw,
            "cpu": self.cpu.ours, "rawCpu": self.cpu.raw,
        })
    }
}

impl Sides {
    pub(crate) fn ours(&self) -> f64 {
        median(&self.ours)
    }

    pub(crate) fn raw(&self) -> f64 {
        median(&self.raw)
    }

    /// Returns how many times as much ours is.
    pub(crate) fn ratio(&self) -> f64 {
        self.ours() / self.raw()
    }

    /// Returns lowest and highest of ours.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let low = self.ours.iter().copied().fold(f64::INFINITY, f64::min);
        (low, self.ours.iter().copied().fold(0.0, f64::max))
    }
}

/// Returns the middle one; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Measures one call in seconds.
pub(crate) fn timed<R>(work: impl FnOnce() -> Outcome<R>) -> Outcome<(f64, R)> {
    let start = Instant::now();
    let result = work()?;
    Ok((start.elapsed().as_secs_f64(), result))
}

/// Returns the time that all threads of this process were on a processor, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos).as_secs_f64()
}

/// Forgets what the system has cached of files, which only root may ask for.
pub(crate) fn drop_caches() -> Result<(), String> {
    std::fs::write("/proc/sys/vm/drop_caches", "3")
        .map_err(|error| format!("the page cache cannot be dropped: {error}"))
}

/// Brings a file to the disk, because dirty pages cannot be dropped.
pub(crate) fn settle(path: &Path) -> Outcome<()> {
    Ok(File::open(path)?.sync_all()?)
}

/// Returns the most memory that a process had so far, in KiB; `None` when it is gone.
pub(crate) fn peak_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the machine's load over the last minute.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// Says a time as people do.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Says a number of bytes as people do.
pub(crate) fn bytes(n: u64) -> String {
    let n = n as f64;
    match n {
        n if n < 1e4 => format!("{n:.0} B"),
        n if n < 1e6 => format!("{:.0} KB", n / 1e3),
        n if n < 1e9 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.2} GB", n / 1e9),
    }
}

/// Returns KiB as MB.
pub(crate) fn mb(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}
