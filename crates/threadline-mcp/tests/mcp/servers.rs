//! Connections: their tools, their bounds, their ends.

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde_json::json;
use threadline_agent::tools::{Ready, ToolSource as _};
use threadline_mcp::{ServerConfig, ServerName, Servers, Standing, Transport, survey};

use crate::support::*;

fn definitions(ready: &Ready) -> String {
    let all: Vec<_> = ready.tools.iter().map(|tool| tool.definition()).collect();
    serde_json::to_string(&all).unwrap()
}

fn impatient(mut config: ServerConfig) -> ServerConfig {
    config.start_timeout = Duration::from_millis(200);
    config
}

fn lacks(servers: &Servers) -> String {
    servers.lacks(&id("one")).join("\n")
}

#[tokio::test]
async fn tools_are_the_same_bytes_over_restarts_and_ordered() {
    let place = Place::new();
    let configs = || vec![place.server("b", "plain"), place.server("a", "names")];
    let mut seen = Vec::new();
    for reverse in [false, true] {
        let mut configs = configs();
        if reverse {
            configs.reverse();
        }
        let servers = Servers::new(configs).unwrap();
        let ready = servers.ready(&id("one"), place.cwd()).await;
        assert!(names(&ready).is_sorted(), "{:?}", names(&ready));
        assert!(names(&ready).iter().all(|name| name.len() <= 64));
        seen.push(definitions(&ready));
        servers.shutdown().await;
    }
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].contains("mcp__b__echo"));
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let alone = Alone::new("pages").await;
    assert_eq!(names(&alone.ready), ["mcp__s__first", "mcp__s__second"]);
}

#[tokio::test]
async fn a_bad_schema_costs_one_tool_and_is_told() {
    for (mode, why) in [
        ("schema", "is no object"),
        ("huge-schema", "has more than 65536 bytes"),
    ] {
        let alone = Alone::new(mode).await;
        assert_eq!(names(&alone.ready), ["mcp__s__good"]);
        assert!(
            lacks(&alone.servers).contains(why),
            "{}",
            lacks(&alone.servers)
        );
        let told = alone.ready.told.as_deref().unwrap();
        assert!(told.contains(why) && told.contains("Be gentle."), "{told}");
    }
}

#[tokio::test]
async fn what_is_no_message_is_passed_over() {
    let alone = Alone::new("junk").await;
    assert_eq!(
        alone.call("echo", json!({ "text": "a" })).await.text(),
        "you said a"
    );
}

#[tokio::test]
async fn each_way_to_be_missing_has_its_reason_and_no_process_is_left() {
    let missing = |mode: &str| {
        let place = Place::new();
        (impatient(place.server("s", mode)), place)
    };
    let (mut nothing, nowhere) = missing("plain");
    nothing.transport = Transport::Stdio {
        command: "no-such-program".into(),
        args: vec![],
        env: BTreeMap::new(),
        cwd: None,
    };
    nothing.start_timeout = Duration::from_secs(20);
    let (mut unset, unset_place) = missing("plain");
    if let Transport::Stdio { env, .. } = &mut unset.transport {
        env.insert("X".into(), "${NO_SUCH_VARIABLE}".into());
    }
    let (mut ends, ends_place) = missing("ends");
    ends.start_timeout = Duration::from_secs(20);
    let (mut endless, endless_place) = missing("endless");
    endless.start_timeout = Duration::from_secs(20);
    let (silent, silent_place) = missing("silent");
    for (config, place, reason) in [
        (nothing, nowhere, "there is no program `no-such-program`"),
        (unset, unset_place, "NO_SUCH_VARIABLE is not set"),
        (
            ends,
            ends_place,
            "exit code 4 (it said: the token is missing)",
        ),
        (endless, endless_place, "it sent a message that is too long"),
        (silent, silent_place, "it was not ready within 0.2 s"),
    ] {
        let alone = Alone::with(place, config).await;
        assert!(alone.ready.tools.is_empty());
        let said = lacks(&alone.servers);
        assert!(said.contains(reason), "{reason}: {said}");
        let told = alone.ready.told.as_deref().unwrap();
        assert!(
            told.contains("`s` is missing") && !told.contains("token"),
            "{told}"
        );
        for pid in alone.place.pids("s") {
            eventually(|| !is_alive(pid)).await;
        }
    }
}

#[tokio::test]
async fn a_server_that_was_not_ready_in_time_is_left_alone_for_a_while() {
    let place = Place::new();
    let config = impatient(place.server("s", "silent"));
    let alone = Alone::with(place, config).await;
    let again = alone.servers.ready(&id("one"), alone.place.cwd()).await;
    assert_eq!(again.told, alone.ready.told);
    // It may have been ended before it could write down its own.
    assert!(alone.place.pids("s").len() < 2);
}

#[tokio::test]
async fn turns_share_connections_and_sessions_do_not() {
    let alone = Alone::new("plain").await;
    let again = alone.servers.ready(&id("one"), alone.place.cwd()).await;
    assert_eq!(definitions(&again), definitions(&alone.ready));
    assert_eq!(alone.place.pids("s").len(), 1);
    let other = alone.servers.ready(&id("two"), alone.place.cwd()).await;
    assert_eq!(alone.place.pids("s").len(), 2);
    drop(other);
    alone.servers.shutdown().await;
    assert!(!alone.place.pids("s").into_iter().any(is_alive));
}

#[tokio::test]
async fn tools_that_change_are_those_of_the_next_turn() {
    let alone = Alone::new("plain").await;
    let before = names(&alone.ready);
    assert_eq!(alone.call("change", json!({})).await.text(), "changed");
    let next = alone.servers.ready(&id("one"), alone.place.cwd()).await;
    let mut after = names(&next);
    after.retain(|name| !before.contains(name));
    assert_eq!(after, ["mcp__s__added"]);
    assert_eq!(alone.place.pids("s").len(), 1);
}

#[tokio::test]
async fn a_session_that_moves_gets_its_servers_where_it_is() {
    let alone = Alone::new("plain").await;
    let elsewhere = tempfile::tempdir().unwrap();
    let next = alone.servers.ready(&id("one"), elsewhere.path()).await;
    let mut context = alone.context();
    context.cwd = elsewhere.path().to_owned();
    let said = find(&next, "where").run(&json!({}), &context).await.text();
    assert!(said.ends_with(elsewhere.path().to_str().unwrap()), "{said}");
    let first = alone.place.pids("s")[0];
    eventually(|| !is_alive(first)).await;
}

#[tokio::test]
async fn connections_that_no_run_uses_are_closed_and_made_again() {
    let place = Place::new();
    let configs = vec![place.server("s", "plain")];
    let servers = Servers::with_idle_time(configs, Duration::ZERO).unwrap();
    let first = servers.ready(&id("one"), place.cwd()).await;
    let second = servers.ready(&id("one"), place.cwd()).await;
    drop(first);
    tokio::task::yield_now().await;
    assert!(place.pids("s").into_iter().all(is_alive));
    drop(second);
    eventually(|| !is_alive(place.pids("s")[0])).await;
    let again = servers.ready(&id("one"), place.cwd()).await;
    assert!(!again.tools.is_empty());
    assert_eq!(place.pids("s").len(), 2);
}

#[tokio::test]
async fn a_process_that_does_not_end_is_killed_at_shutdown() {
    let alone = Alone::new("stubborn").await;
    alone.servers.shutdown().await;
    assert!(!is_alive(alone.place.pids("s")[0]));
}

#[tokio::test]
async fn a_session_has_the_servers_that_it_was_assigned() {
    let place = Place::new();
    let servers = Servers::new(vec![place.server("usual", "plain")]).unwrap();
    servers.ready(&id("one"), place.cwd()).await;
    servers
        .assign(id("one"), vec![place.server("own", "pages")])
        .await
        .unwrap();
    assert!(!is_alive(place.pids("usual")[0]));
    let ready = servers.ready(&id("one"), place.cwd()).await;
    assert_eq!(names(&ready), ["mcp__own__first", "mcp__own__second"]);
    servers.assign(id("none"), vec![]).await.unwrap();
    assert!(
        servers
            .ready(&id("none"), place.cwd())
            .await
            .tools
            .is_empty()
    );
    servers.forget(&id("one")).await;
    assert!(!is_alive(place.pids("own")[0]));
    let twins = vec![place.server("a", "plain"), place.server("a", "plain")];
    assert!(servers.assign(id("one"), twins).await.is_err());
}

#[tokio::test]
async fn a_disabled_server_is_neither_started_nor_missed() {
    let place = Place::new();
    let mut config = place.server("s", "plain");
    config.enabled = false;
    let servers = Servers::new(vec![config]).unwrap();
    assert!(!servers.serves(&id("one")));
    let ready = servers.ready(&id("one"), place.cwd()).await;
    assert!(ready.tools.is_empty() && ready.told.is_none() && place.pids("s").is_empty());
}

#[tokio::test]
async fn a_survey_tells_how_each_server_stands_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut off = place.server("off", "plain");
    off.enabled = false;
    let configs = [
        place.server("ok", "pages"),
        place.server("bad", "ends"),
        off,
    ];
    let reports = survey(&configs, place.cwd()).await;
    let states: Vec<_> = reports.iter().map(|report| report.state).collect();
    assert_eq!(
        states,
        [Standing::Connected, Standing::Missing, Standing::Disabled]
    );
    assert_eq!(reports[0].tools[0].name, "mcp__ok__first");
    assert_eq!(reports[1].detail.as_deref(), Some("the token is missing"));
    assert!(!place.pids("ok").into_iter().any(is_alive));
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_told() {
    let place = Place::new();
    let transport = Transport::Stdio {
        command: "sh".into(),
        args: vec![],
        env: BTreeMap::new(),
        cwd: Some(Path::new("nowhere").into()),
    };
    let config = ServerConfig::new(ServerName::parse("s").unwrap(), transport);
    let alone = Alone::with(place, config).await;
    assert!(lacks(&alone.servers).contains("folder it works in does not exist"));
}
