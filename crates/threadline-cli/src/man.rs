//! `threadline man`: manual pages, made from the command line itself.

use std::path::Path;

use clap::CommandFactory as _;

use crate::{
    args::Cli,
    failure::{Exit, Failure, Outcome},
    ui::Ui,
};

/// Prints the manual page of the program, or writes those of all verbs into a directory.
pub(crate) fn man(ui: Ui, out: Option<&Path>) -> Outcome<Exit> {
    let Some(out) = out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command())
            .render(&mut page)
            .map_err(|error| Failure::new("internal", error.to_string()))?;
        ui.print(&String::from_utf8_lossy(&page))?;
        return Ok(Exit::Completed);
    };
    let failed = |error: std::io::Error| {
        Failure::usage(format!(
            "the manual pages cannot be written to {}: {error}",
            out.display()
        ))
        .hint("name a directory that can be written: `threadline man --out DIR`")
    };
    std::fs::create_dir_all(out).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), out).map_err(failed)?;
    ui.note(&format!(
        "The manual pages are in {0}. Read one with: man {0}/threadline-run.1",
        out.display()
    ));
    Ok(Exit::Completed)
}
