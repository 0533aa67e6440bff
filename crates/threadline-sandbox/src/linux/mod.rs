//! The rules as the Linux kernel takes them.

mod calls;
mod mounts;
mod rules;

use rustix::thread::CapabilitySet;

use crate::plan::Plan;
use crate::{Error, Layers, Policy};

/// Applies a policy to this process, for good. On failure the process must not go on.
pub(crate) fn apply(policy: &Policy) -> Result<(), Error> {
    let plan = Plan::new(policy)?;
    if policy.layers == Layers::Namespaces {
        mounts::apply(&plan)?;
    }
    rustix::process::chdir(&plan.workspace)
        .map_err(|error| Error::path(&plan.workspace, &error.into()))?;
    if plan.temp.is_some() {
        drop_capabilities()?;
    }
    rules::apply(&plan, policy.layers)?;
    calls::apply(&plan, policy.layers)
}

/// Returns which layers the system gives, by taking them.
pub(crate) fn probe() -> Result<Layers, Error> {
    // First, because it must not be a part of what is tried.
    calls::probe()?;
    let layers = match mounts::probe() {
        Ok(()) => Layers::Namespaces,
        Err(_) => Layers::LandlockOnly,
    };
    rules::probe()?;
    Ok(layers)
}

/// What an administrator's command keeps: to work on files that are its own by being the
/// administrator's, and nothing that reaches around the rules (disks, memory, modules, mounts).
fn drop_capabilities() -> Result<(), Error> {
    let kept = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::KILL
        | CapabilitySet::SETGID
        | CapabilitySet::SETUID;
    let fail = |error| Error::apply("giving up privileges", error);
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        // The kernel answers with an error for numbers that it has no capability for.
        let Ok(true) = rustix::thread::capability_is_in_bounding_set(one) else {
            continue;
        };
        if kept.contains(one) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Who may not do that has no capability to give up.
            Err(rustix::io::Errno::PERM) => break,
            Err(error) => return Err(fail(error)),
        }
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    let held = rustix::thread::capabilities(None).map_err(fail)?;
    let sets = rustix::thread::CapabilitySets {
        effective: held.effective & kept,
        permitted: held.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).map_err(fail)
}
