//! The table for people and the JSON for programs.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{measure, measure::Both};

/// What came of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    NotMet,
    NotMeasured,
    /// There is no bar.
    Shown,
}

impl Verdict {
    pub(crate) fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::NotMet }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "NOT MET",
            Self::NotMeasured => "not measured",
            Self::Shown => "",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figure {
    pub(crate) row: &'static str,
    pub(crate) what: String,
    pub(crate) bar: String,
    pub(crate) ours: String,
    pub(crate) raw: String,
    pub(crate) ratio: Option<f64>,
    /// The ratio of the times on processors, where that says more than the clock on the wall.
    pub(crate) cpu_ratio: Option<f64>,
    pub(crate) verdict: Verdict,
    /// Numbers behind it, in seconds and bytes.
    pub(crate) detail: Value,
}

impl Figure {
    /// Makes a figure that only shows something.
    pub(crate) fn new(row: &'static str, what: impl Into<String>) -> Self {
        Self {
            row,
            what: what.into(),
            bar: String::new(),
            ours: String::new(),
            raw: String::new(),
            ratio: None,
            cpu_ratio: None,
            verdict: Verdict::Shown,
            detail: Value::Null,
        }
    }

    /// Says why something could not be measured.
    pub(crate) fn failed(row: &'static str, what: impl Into<String>, why: &str) -> Self {
        Self {
            verdict: Verdict::NotMeasured,
            detail: json!({ "why": why }),
            ..Self::new(row, what)
        }
    }

    pub(crate) fn bar(mut self, bar: impl Into<String>, met: bool) -> Self {
        self.bar = bar.into();
        self.verdict = Verdict::of(met);
        self
    }

    pub(crate) fn ours(mut self, ours: impl Into<String>) -> Self {
        self.ours = ours.into();
        self
    }

    pub(crate) fn raw(mut self, raw: impl Into<String>, ratio: f64) -> Self {
        self.raw = raw.into();
        self.ratio = Some(ratio).filter(|ratio| ratio.is_finite());
        self
    }

    /// Shows both sides by both clocks.
    pub(crate) fn both(self, both: &Both) -> Self {
        let (ours, raw) = (both.wall.ours(), both.wall.raw());
        let mut shown = self
            .ours(measure::time(ours))
            .raw(measure::time(raw), both.wall.ratio())
            .detail(both.detail());
        shown.cpu_ratio = Some(both.cpu.ratio()).filter(|ratio| ratio.is_finite());
        shown
    }

    pub(crate) fn detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

/// Prints the table to standard error.
pub(crate) fn table(figures: &[Figure]) {
    let widths = |get: fn(&Figure) -> &str, title: &str| {
        let longest = figures.iter().map(|figure| get(figure).chars().count());
        longest.max().unwrap_or(0).max(title.len())
    };
    let what = widths(|figure| &figure.what, "what");
    let bar = widths(|figure| &figure.bar, "bar");
    let ours = widths(|figure| &figure.ours, "ours");
    let raw = widths(|figure| &figure.raw, "raw");
    eprintln!(
        "\n{:what$}  {:bar$}  {:>ours$}  {:>raw$}  {:>7}  {:>7}",
        "what", "bar", "ours", "raw", "ratio", "of cpu"
    );
    let number = |ratio: Option<f64>| ratio.map_or_else(String::new, |n| format!("{n:.2}"));
    for figure in figures {
        let (ratio, cpu) = (number(figure.ratio), number(figure.cpu_ratio));
        eprintln!(
            "{:what$}  {:bar$}  {:>ours$}  {:>raw$}  {ratio:>7}  {cpu:>7}  {}",
            figure.what,
            figure.bar,
            figure.ours,
            figure.raw,
            figure.verdict.text()
        );
        if let Some(why) = figure.detail.get("why").and_then(Value::as_str) {
            eprintln!("    {why}");
        }
    }
}

/// Returns everything as JSON.
pub(crate) fn json(figures: &[Figure], load_before: f64) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({
        "bench": "store",
        "machine": { "cores": cores },
        "load": { "before": load_before, "after": measure::load_average() },
        "figures": figures,
    })
}
