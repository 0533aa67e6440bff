//! Help pages and errors as people see them, compared whole with what was looked at.
//!
//! `THREADLINE_ACCEPT=1` accepts what is printed now.

use std::path::PathBuf;

use crate::support::World;

#[track_caller]
fn is(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cli/pages")
        .join(format!("{name}.txt"));
    if std::env::var_os("THREADLINE_ACCEPT").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == wanted,
        "{} differs (THREADLINE_ACCEPT=1 accepts it); printed is\n{text}\nwanted was\n{wanted}",
        path.display()
    );
}

/// Returns the verbs that a help page lists.
fn verbs(help: &str) -> Vec<String> {
    let listed = help.split("Commands:\n").nth(1).unwrap_or_default();
    let listed = listed.lines().take_while(|line| !line.trim().is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    names.map(str::to_owned).collect()
}

#[test]
fn every_help_page_is_as_it_was_looked_at_and_has_an_example() {
    let world = World::new();
    let top = world.call(&["--help"]);
    is("threadline", &top.redacted());
    let mut pages = Vec::new();
    for verb in verbs(&top.stdout) {
        let page = world.call(&[&verb, "--help"]);
        let below = verbs(&page.stdout);
        if below.is_empty() {
            pages.push((verb, page));
            continue;
        }
        for lower in below {
            let page = world.call(&[&verb, &lower, "--help"]);
            pages.push((format!("{verb} {lower}"), page));
        }
    }
    assert!(pages.len() > 20, "{}", pages.len());
    for (name, page) in pages {
        page.ok();
        let example = format!("threadline {name}");
        let shown = page.stdout.split("Example").nth(1).unwrap_or_default();
        assert!(
            shown.contains(&example),
            "{name} has no example:\n{}",
            page.stdout
        );
        is(&name.replace(' ', "-"), &page.redacted());
    }
}

#[test]
fn errors_say_what_where_and_what_to_type_next() {
    let world = World::new();
    let id = world.hello();
    let gone = "00000000-0000-7000-8000-000000000000";
    let file = world.root().join("a-file");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    let calls: &[&[&str]] = &[
        &[],
        &["nonsense"],
        &["run"],
        &["run", "--sandbox", "everything", "x"],
        &["run", "--session", gone, "x"],
        &["run", "--provider", "nobody", "x"],
        &["run", "--provider", "anthropic", "--model", "m", "x"],
        &["run", "--cwd", "/nowhere", "x"],
        &["run", "--take-over", "x"],
        &["resume"],
        &["resume", &id, "--last"],
        &["show", gone],
        &["show", gone, "--json"],
        &["fork", &id, "--at", "99999"],
        &["rewind", &id, "--turns", "7"],
        &["redo", &id],
        &["rm", &id],
        &["ls", "--store", "ftp://x"],
        &["man", "--out", file],
        &["config"],
    ];
    let mut text = String::new();
    for call in calls {
        let called = world.call(call);
        assert_ne!(called.code(), Some(0), "{called:#?}");
        text.push_str(&format!(
            "$ threadline {}\n",
            call.join(" ").replace(&id, "<id>")
        ));
        text.push_str(&called.redacted().replace(file, "<root>/a-file"));
        text.push('\n');
    }
    is(
        "errors",
        &text.replace(world.root().to_str().unwrap(), "<root>"),
    );
}

#[test]
fn manual_pages_of_all_verbs_are_written() {
    let world = World::new();
    world
        .call(&["man"])
        .ok()
        .prints(&[".TH threadline 1", "Exit codes"]);
    let out = world.root().join("man");
    world
        .call(&["man", "--out", out.to_str().unwrap()])
        .ok()
        .says(&["man/threadline-run.1"]);
    for name in [
        "threadline.1",
        "threadline-run.1",
        "threadline-config-show.1",
    ] {
        let page = std::fs::read_to_string(out.join(name)).unwrap();
        assert!(page.contains(".SH NAME"), "{name}");
    }
}

#[test]
fn the_configuration_is_shown_with_its_sources_and_without_its_secrets() {
    let mut world = World::new();
    world.env.insert("OPENAI_API_KEY".into(), "sesame".into());
    let config = world.home().join(".config/threadline");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(
        config.join("config.toml"),
        "provider = \"openai-chat\"\nmodel = \"m\"\n[limits]\nrun_seconds = 60\n",
    )
    .unwrap();
    let shown = world.call(&["config", "show", "--model", "other"]);
    shown.ok();
    is("config-shown", &shown.redacted());
    assert!(!shown.stdout.contains("sesame"));
    let json = world.call(&["config", "show", "--json"]).json();
    let settings = json["settings"].as_array().unwrap();
    let model = settings.iter().find(|setting| setting["name"] == "model");
    assert_eq!(model.unwrap()["source"]["kind"], "file");
    assert_eq!(json["fileExists"], true);
}

#[test]
fn the_last_session_of_another_folder_goes_on_and_that_is_said() {
    let world = World::new();
    let id = world.hello();
    let elsewhere = world.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut command = world.command(&["run", "--json", "--last", "--provider", "offline", "more"]);
    let output = command.current_dir(&elsewhere).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("the last one of another folder goes on"),
        "{stderr}"
    );
    assert!(
        stderr.contains(&format!("Continuing session {id}")),
        "{stderr}"
    );
}
