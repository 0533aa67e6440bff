//! Commands that are approved beforehand, and calls that leave the sandbox.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use threadline_agent::{
    Agents, Allow, Answer, AnswerError, Answered, ApprovalInfo, GrantError, ReplayOptions, Run,
    RunEvent, RunInput,
    limits::MAX_GRANTS,
    policy::CommandPrefix,
    replay,
    tools::{Effect, Tool, ToolContext, ToolOutput, Toolbox},
};
use threadline_session::{
    Covers, Payload, SessionId,
    payload::{
        ApprovalPolicy, Decision, EndReason, Outcome, SandboxMode, ToolDefinition, plain_text,
    },
};

use crate::support::*;

/// Notes what it is run with instead of running anything.
#[derive(Clone, Default)]
struct FakeShell {
    ran: Arc<Mutex<Vec<(String, SandboxMode, bool)>>>,
}

#[async_trait]
impl Tool for FakeShell {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "shell".into(),
            description: "runs".into(),
            parameters: json!({ "type": "object" }),
        }
    }

    fn effect(&self, _: &Value) -> Effect {
        Effect::Executes
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let command = arguments["command"].as_str().unwrap().to_owned();
        self.ran
            .lock()
            .unwrap()
            .push((command, ctx.sandbox, ctx.granted));
        ToolOutput::ok("done")
    }
}

struct Shop {
    world: World,
    shell: FakeShell,
}

impl Shop {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            world: World::new(replies),
            shell: FakeShell::default(),
        }
    }

    fn agents(&self) -> Agents {
        self.agents_with(|_| {})
    }

    fn agents_with(&self, change: impl FnOnce(&mut threadline_agent::AgentsConfig)) -> Agents {
        let mut config = self.world.config();
        config.toolbox = Toolbox::new();
        config
            .toolbox
            .register(Arc::new(self.shell.clone()))
            .unwrap();
        change(&mut config);
        Agents::new(config)
    }

    fn ran(&self) -> Vec<String> {
        let ran = self.shell.ran.lock().unwrap();
        ran.iter().map(|(command, _, _)| command.clone()).collect()
    }

    /// Runs the loop again over the log: the same questions, calls and refusals must come of it.
    async fn is_made_again(&self, id: &SessionId) {
        let options = ReplayOptions {
            toolbox: self.agents().config().toolbox.clone(),
            ..ReplayOptions::default()
        };
        let report = replay(&self.world.store(), id, options).await.unwrap();
        assert!(report.identical, "{report:#?}");
    }

    async fn count(&self, id: &SessionId, kind: &str) -> usize {
        let types = self.world.types(id).await;
        types.iter().filter(|found| *found == kind).count()
    }
}

fn shell(call_id: &'static str, command: &str) -> (&'static str, &'static str, Value) {
    (call_id, "shell", json!({ "command": command }))
}

fn outside(call_id: &'static str, command: &str) -> (&'static str, &'static str, Value) {
    let arguments = json!({ "command": command, "outside_sandbox": true, "reason": "to commit" });
    (call_id, "shell", arguments)
}

fn allow(prefix: &str) -> Allow {
    Allow {
        prefix: CommandPrefix::parse(prefix).unwrap(),
        by: "test".into(),
    }
}

fn allowing(text: &str, prefixes: &[&str]) -> RunInput {
    RunInput {
        allow: prefixes.iter().map(|prefix| allow(prefix)).collect(),
        ..task(text)
    }
}

fn for_session(prefix: Option<&str>) -> Answered {
    Answered {
        answer: Answer::ApproveForSession,
        by: "me".into(),
        comment: None,
        prefix: prefix.map(|text| text.split(' ').map(Into::into).collect()),
    }
}

fn once() -> Answered {
    Answered {
        answer: Answer::Approve,
        ..for_session(None)
    }
}

async fn question(run: &Run) -> ApprovalInfo {
    let RunEvent::ApprovalRequired(info) = until(&mut run.stream(), "approval_required").await
    else {
        panic!("not a question")
    };
    info
}

#[tokio::test]
async fn commands_granted_at_the_start_are_not_asked_for_also_after_resuming() {
    let shop = Shop::new([
        Reply::Calls(vec![shell("c1", "cargo test -p x")]),
        Reply::Text("one"),
        Reply::Calls(vec![shell("c2", "cargo test && cargo test --doc")]),
        Reply::Text("two"),
    ]);
    let input = allowing("x", &["cargo test", "cargo test"]);
    let run = start(&shop.agents(), None, input).await;
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    let id = run.session_id();
    // Another process, which nobody tells anything.
    let (_, outcome) = finish(&shop.agents(), Some(id), "y").await;
    assert_eq!(outcome.answer, "two");
    assert_eq!(shop.ran().len(), 2);
    assert!(
        shop.shell
            .ran
            .lock()
            .unwrap()
            .iter()
            .all(|(_, mode, granted)| { *granted && *mode == SandboxMode::WorkspaceWrite })
    );
    assert_eq!(shop.count(id, "approval/asked").await, 0);
    assert_eq!(shop.count(id, "approval/granted").await, 1);
    let grants = shop.agents().grants(id).await.unwrap();
    assert_eq!((grants.len(), grants[0].by.as_str()), (1, "test"));
    // Each call names what let it through.
    let starts: Vec<_> = shop
        .world
        .payloads(id)
        .await
        .into_iter()
        .filter_map(|payload| match payload {
            Payload::ToolStart(start) => start.grant_id,
            _ => None,
        })
        .collect();
    assert_eq!(starts, vec![grants[0].id.clone(); 2]);
    shop.is_made_again(id).await;
}

#[tokio::test]
async fn what_is_set_up_for_new_sessions_widens_no_old_one() {
    let shop = Shop::new([Reply::Text("one"), Reply::Text("two")]);
    let (run, _) = finish(&shop.agents(), None, "x").await;
    let with_default =
        || shop.agents_with(|config| config.defaults.allow = vec![allow("cargo test")]);
    finish(&with_default(), Some(run.session_id()), "y").await;
    assert!(
        shop.agents()
            .grants(run.session_id())
            .await
            .unwrap()
            .is_empty()
    );
    let (new, _) = finish(&with_default(), None, "x").await;
    assert_eq!(
        shop.agents().grants(new.session_id()).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn an_answer_for_the_session_may_take_the_words_that_are_offered_and_no_others() {
    let shop = Shop::new([
        Reply::Calls(vec![
            shell("c1", "cargo test -p x"),
            shell("c2", "cargo test -p y"),
        ]),
        Reply::Text("ok"),
    ]);
    let agents = shop.agents();
    let run = start(&agents, None, task("x")).await;
    let info = question(&run).await;
    assert_eq!(info.prefix, Some(vec!["cargo".into(), "test".into()]));
    let board = agents.approvals();
    for wrong in [
        for_session(Some("cargo")),
        for_session(Some("cargo build")),
        Answered {
            prefix: info.prefix.clone(),
            ..once()
        },
    ] {
        let refused = board.answer(run.run_id(), "c1", wrong);
        assert!(matches!(refused, Err(AnswerError::NotOffered { .. })));
    }
    let yes = for_session(Some("cargo test"));
    board.answer(run.run_id(), "c1", yes).unwrap();
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    assert_eq!(shop.ran(), ["cargo test -p x", "cargo test -p y"]);
    shop.is_made_again(run.session_id()).await;
    assert_eq!(shop.count(run.session_id(), "approval/asked").await, 1);
    let grants = agents.grants(run.session_id()).await.unwrap();
    assert_eq!(
        (&grants[0].id, grants[0].by.as_str()),
        (&info.approval_id, "me")
    );
}

#[tokio::test]
async fn a_grant_that_is_revoked_during_a_run_does_not_cover_the_next_call() {
    let shop = Shop::new([
        Reply::Calls(vec![shell("c1", "cargo test"), shell("c2", "make check")]),
        Reply::Calls(vec![shell("c3", "cargo test")]),
        Reply::Text("ok"),
    ]);
    let agents = shop.agents();
    let run = start(&agents, None, allowing("x", &["cargo test"])).await;
    let mut stream = run.stream();
    until(&mut stream, "approval_required").await;
    let id = run.session_id();
    let granted = agents.grants(id).await.unwrap().remove(0);
    agents.revoke(id, &granted.id, "page").await.unwrap();
    let again = agents.revoke(id, &granted.id, "page").await;
    assert!(matches!(again, Err(GrantError::NotFound { .. })));
    agents
        .approvals()
        .answer(run.run_id(), "c2", once())
        .unwrap();
    let RunEvent::ApprovalRequired(info) = until(&mut stream, "approval_required").await else {
        panic!("not a question")
    };
    assert_eq!(info.tool_call_id, "c3");
    agents
        .approvals()
        .answer(run.run_id(), "c3", once())
        .unwrap();
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    assert_eq!(shop.ran(), ["cargo test", "make check", "cargo test"]);
    shop.is_made_again(id).await;
}

#[tokio::test]
async fn a_grant_given_during_a_run_covers_the_next_call() {
    let shop = Shop::new([
        Reply::Calls(vec![shell("c1", "make check"), shell("c2", "cargo test")]),
        Reply::Text("ok"),
    ]);
    let agents = shop.agents();
    let run = start(&agents, None, task("x")).await;
    question(&run).await;
    let given = agents.grant(run.session_id(), allow("cargo test")).await;
    let given = given.unwrap();
    // The same again is the same grant.
    let again = agents.grant(run.session_id(), allow("cargo test")).await;
    assert_eq!(again.unwrap(), given);
    agents
        .approvals()
        .answer(run.run_id(), "c1", once())
        .unwrap();
    run.wait().await;
    assert_eq!(shop.ran(), ["make check", "cargo test"]);
    assert_eq!(shop.count(run.session_id(), "approval/asked").await, 1);
}

#[tokio::test]
async fn a_grant_for_one_call_is_seen_and_revoked_like_any_other() {
    let shop = Shop::new([
        Reply::Calls(vec![shell("c1", "./x.sh")]),
        Reply::Text("one"),
        Reply::Calls(vec![shell("c2", "./x.sh")]),
        Reply::Text("two"),
    ]);
    let agents = shop.agents();
    let run = start(&agents, None, task("x")).await;
    let info = question(&run).await;
    assert_eq!(info.prefix, None);
    agents
        .approvals()
        .answer(run.run_id(), "c1", for_session(None))
        .unwrap();
    run.wait().await;
    let id = run.session_id();
    let grants = agents.grants(id).await.unwrap();
    assert!(matches!(&grants[0].covers, Covers::Call { name, .. } if name == "shell"));
    agents.revoke(id, &grants[0].id, "me").await.unwrap();
    let run = start(&agents, Some(id), task("y")).await;
    question(&run).await;
    run.cancel();
    run.wait().await;
    assert_eq!(shop.ran(), ["./x.sh"]);
}

#[tokio::test]
async fn a_fork_has_the_grants_of_its_point_and_a_rewind_takes_back_later_ones() {
    let shop = Shop::new([Reply::Text("one"), Reply::Text("two"), Reply::Text("three")]);
    let agents = shop.agents();
    let run = start(&agents, None, allowing("x", &["cargo test"])).await;
    let first = run.wait().await.last_seq;
    let id = run.session_id();
    let run = start(&agents, Some(id), allowing("y", &["make check"])).await;
    run.wait().await;
    let store = shop.world.store();
    let ids = |name: &str| SessionId::parse(name).unwrap();
    for (name, at, count) in [("early", Some(first), 1), ("late", None, 2)] {
        let forked = store.fork(id, at, ids(name)).await.unwrap();
        let grants = agents.grants(&forked.id).await.unwrap();
        assert_eq!(grants.len(), count, "{name}");
    }
    store.rewind(id, first).await.unwrap();
    assert_eq!(agents.grants(id).await.unwrap().len(), 1);
    store.redo(id).await.unwrap();
    assert_eq!(agents.grants(id).await.unwrap().len(), 1);
}

#[tokio::test]
async fn grants_are_bounded() {
    let shop = Shop::new([Reply::Text("one")]);
    let agents = shop.agents();
    let many: Vec<String> = (0..MAX_GRANTS).map(|n| format!("tool{n}x")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let run = start(&agents, None, allowing("x", &many)).await;
    run.wait().await;
    let full = agents.grant(run.session_id(), allow("cargo test")).await;
    assert!(matches!(full, Err(GrantError::Full)));
    let input = allowing("y", &["cargo test"]);
    let refused = agents.start(Some(run.session_id().clone()), input).await;
    assert_eq!(refused.unwrap_err().code(), "grants_full");
}

#[tokio::test]
async fn a_call_leaves_the_sandbox_once_it_was_approved_and_the_log_says_so() {
    let shop = Shop::new([
        Reply::Calls(vec![outside("c1", "git commit"), shell("c2", "make")]),
        Reply::Calls(vec![outside("c3", "git commit")]),
        Reply::Text("ok"),
    ]);
    let agents = shop.agents();
    let run = start(&agents, None, allowing("x", &["git commit"])).await;
    let mut stream = run.stream();
    let mut asked = Vec::new();
    for _ in 0..3 {
        let RunEvent::ApprovalRequired(info) = until(&mut stream, "approval_required").await else {
            panic!("not a question")
        };
        let call = info.tool_call_id.clone();
        asked.push((call.clone(), info.outside_sandbox, info.prefix));
        // For the session nobody leaves the sandbox, so it holds once.
        agents
            .approvals()
            .answer(run.run_id(), &call, for_session(None))
            .unwrap();
    }
    let wanted = [("c1", true), ("c2", false), ("c3", true)];
    let wanted = wanted.map(|(call, outside)| (call.to_owned(), outside, None));
    assert_eq!(asked, wanted);
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    let modes: Vec<_> = shop
        .shell
        .ran
        .lock()
        .unwrap()
        .iter()
        .map(|ran| ran.1)
        .collect();
    assert_eq!(
        modes,
        [
            SandboxMode::DangerFullAccess,
            SandboxMode::WorkspaceWrite,
            SandboxMode::DangerFullAccess
        ]
    );
    let id = run.session_id();
    let (mut marks, mut decisions) = (Vec::new(), Vec::new());
    for payload in shop.world.payloads(id).await {
        match payload {
            Payload::ToolStart(start) => marks.push(start.outside_sandbox),
            Payload::ApprovalDecided(decided) => decisions.push(decided.decision),
            _ => {}
        }
    }
    assert_eq!(marks, [true, false, true]);
    let (once, session) = (Decision::Approved, Decision::ApprovedForSession);
    assert_eq!(decisions, [once, session, once]);
    assert_eq!(agents.grants(id).await.unwrap().len(), 2);
    let unequal = shop.world.store().unequal_requests(id).await.unwrap();
    assert!(unequal.is_empty());
    shop.is_made_again(id).await;
}

#[tokio::test]
async fn where_nobody_may_leave_the_sandbox_the_model_is_told_so_in_every_run() {
    let shop = Shop::new([
        Reply::Calls(vec![outside("c1", "git commit")]),
        Reply::Text("one"),
        Reply::Calls(vec![outside("c2", "git commit")]),
        Reply::Text("two"),
    ]);
    let agents = shop.agents();
    for input in [
        RunInput {
            confined: true,
            ..task("x")
        },
        RunInput {
            approval_policy: Some(ApprovalPolicy::Never),
            ..task("y")
        },
    ] {
        let run = start(&agents, None, input).await;
        assert_eq!(run.wait().await.reason, EndReason::Completed);
        let payloads = shop.world.payloads(run.session_id()).await;
        let told = payloads.into_iter().find_map(|payload| match payload {
            Payload::ToolResult(result) => Some(result),
            _ => None,
        });
        let told = told.unwrap();
        assert_eq!(told.outcome, Outcome::Denied);
        let text = plain_text(&told.content);
        assert!(text.contains("`outside_sandbox`"), "{text}");
        shop.is_made_again(run.session_id()).await;
        assert_eq!(shop.count(run.session_id(), "approval/asked").await, 0);
    }
    assert!(shop.ran().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_waits_too_long_is_logged_as_timed_out() {
    let shop = Shop::new([
        Reply::Calls(vec![shell("c1", "make")]),
        Reply::Text("then not"),
    ]);
    let agents = shop.agents_with(|config| {
        config.approval_timeout = std::time::Duration::from_secs(30);
    });
    let before = tokio::time::Instant::now();
    let run = start(&agents, None, task("x")).await;
    assert_eq!(run.wait().await.answer, "then not");
    let waited = before.elapsed().as_secs();
    assert!((30..60).contains(&waited), "{waited}");
    let mut told = Vec::new();
    for payload in shop.world.payloads(run.session_id()).await {
        match payload {
            Payload::ApprovalDecided(decided) => {
                assert_eq!(decided.decision, Decision::Expired);
                told.push(decided.by);
            }
            Payload::ToolResult(result) => assert_eq!(result.outcome, Outcome::Denied),
            _ => {}
        }
    }
    assert_eq!(told, ["timeout"]);
    assert!(shop.ran().is_empty());
}
