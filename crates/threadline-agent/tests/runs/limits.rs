//! Turns that reach a limit.

use std::time::Duration;

use serde_json::json;
use threadline_agent::{Agents, Price, RunInput, RunLimits, tools::Effect};
use threadline_session::payload::{EndReason, RunLimit};

use crate::support::{Gated, Reply, World, finish, start, task};

fn limit(reason: &EndReason) -> Option<RunLimit> {
    match reason {
        EndReason::Limit { limit, message } => {
            assert!(!message.is_empty());
            Some(*limit)
        }
        _ => None,
    }
}

fn listing(n: usize) -> Reply {
    Reply::Calls(vec![(
        "c",
        "ls",
        json!({ "path": if n == 0 { "." } else { ".." } }),
    )])
}

fn world(limits: RunLimits) -> (World, Agents) {
    let world = World::new((0..30).map(|_| listing(0)));
    let mut config = world.config();
    config.limits = limits;
    config.prices.insert(
        "script".into(),
        Price {
            input: 1e5,
            cached_input: 0.0,
            output: 0.0,
        },
    );
    (world, Agents::new(config))
}

#[tokio::test]
async fn each_limit_ends_the_turn_with_its_own_reason() {
    let none = RunLimits {
        repeated_steps: None,
        ..RunLimits::default()
    };
    // A scripted step takes 15 tokens and costs 1.
    for (limits, wanted, steps) in [
        (
            RunLimits {
                run_tokens: Some(40),
                ..none
            },
            RunLimit::RunTokens,
            3,
        ),
        (
            RunLimits {
                session_tokens: Some(60),
                ..none
            },
            RunLimit::SessionTokens,
            4,
        ),
        (
            RunLimits {
                run_cost: Some(2.0),
                ..none
            },
            RunLimit::RunCost,
            2,
        ),
        (
            RunLimits {
                session_cost: Some(5.0),
                ..none
            },
            RunLimit::SessionCost,
            5,
        ),
        (
            RunLimits {
                session_steps: Some(2),
                ..none
            },
            RunLimit::SessionSteps,
            2,
        ),
        (
            RunLimits {
                repeated_steps: Some(6),
                ..none
            },
            RunLimit::RepeatedCalls,
            6,
        ),
    ] {
        let (world, agents) = world(limits);
        let (run, outcome) = finish(&agents, None, "go").await;
        assert_eq!(limit(&outcome.reason), Some(wanted), "{:?}", outcome.reason);
        assert_eq!(world.script.requests().len(), steps, "{wanted:?}");
        assert!(world.store().verify(run.session_id()).await.unwrap().ok);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_is_up_ends_its_tools_and_says_so() {
    let world = World::new([Reply::Calls(vec![("c", "wait", json!({}))])]);
    let gate = Gated::new("wait", Effect::ReadOnly);
    let mut config = world.config();
    config.toolbox.register(gate.clone()).unwrap();
    config.limits.time = Some(Duration::from_secs(60));
    let agents = Agents::new(config);
    let run = start(&agents, None, task("go")).await;
    let outcome = run.wait().await;
    assert_eq!(limit(&outcome.reason), Some(RunLimit::Time), "{outcome:?}");
    // The next turn has its own time.
    let (_, outcome) = finish(&agents, Some(run.session_id()), "on").await;
    assert_eq!(outcome.reason, EndReason::Completed);
}

#[tokio::test]
async fn a_caller_may_narrow_what_is_configured_and_not_widen_it() {
    for (asked, wanted, steps) in [
        (Some(20), RunLimit::RunTokens, 2),
        (Some(1000), RunLimit::RunTokens, 3),
        (None, RunLimit::RunTokens, 3),
    ] {
        let (world, agents) = world(RunLimits {
            run_tokens: Some(40),
            ..RunLimits::NONE
        });
        let input = RunInput {
            limits: Some(RunLimits {
                run_tokens: asked,
                ..RunLimits::NONE
            }),
            ..task("go")
        };
        let outcome = start(&agents, None, input).await.wait().await;
        assert_eq!(limit(&outcome.reason), Some(wanted), "{asked:?}");
        assert_eq!(world.script.requests().len(), steps, "{asked:?}");
    }
    let (world, agents) = world(RunLimits {
        steps: Some(2),
        ..RunLimits::NONE
    });
    let input = RunInput {
        max_steps: Some(5),
        ..task("go")
    };
    let outcome = start(&agents, None, input).await.wait().await;
    assert_eq!(outcome.reason, EndReason::MaxSteps);
    assert_eq!(world.script.requests().len(), 2);
}
