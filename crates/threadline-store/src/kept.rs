//! What a checkpoint holds besides the reducer's state.
//!
//! Layout: the length of the JSON part (4 bytes, little endian), the JSON part, the frozen state.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use threadline_session::{ThawError, Transcript, chain::ChainValue};

use crate::{ReadPos, writer::Keys};

/// Everything that going on needs besides the lines behind it.
pub(crate) struct Kept {
    /// The last turn end's chain value.
    pub(crate) chain: Option<ChainValue>,
    /// Where the lines begin that the next chain value covers.
    pub(crate) chain_from: ReadPos,
    pub(crate) keys: Keys,
    pub(crate) state: Transcript,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    chain: Option<String>,
    chain_seq: u64,
    chain_hint: Option<u64>,
    keys: Vec<(String, u64)>,
}

impl Kept {
    pub(crate) fn encode(
        chain: Option<ChainValue>,
        chain_from: ReadPos,
        keys: &Keys,
        state: &Transcript,
    ) -> Vec<u8> {
        let written = Written {
            chain: chain.map(|value| value.to_hex()),
            chain_seq: chain_from.seq,
            chain_hint: chain_from.hint,
            keys: keys.to_vec(),
        };
        let json = serde_json::to_vec(&written).unwrap_or_default();
        let mut bytes = u32::try_from(json.len())
            .unwrap_or(0)
            .to_le_bytes()
            .to_vec();
        bytes.extend_from_slice(&json);
        bytes.extend_from_slice(&state.freeze());
        bytes
    }

    pub(crate) fn decode(
        bytes: &[u8],
        registered: Arc<BTreeSet<String>>,
    ) -> Result<Self, ThawError> {
        let useless = |reason: &str| ThawError::Useless {
            reason: reason.into(),
        };
        let short = || useless("too short");
        let (len, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        let (json, frozen) = rest.split_at_checked(len).ok_or_else(short)?;
        let written: Written =
            serde_json::from_slice(json).map_err(|error| useless(&error.to_string()))?;
        let chain = match &written.chain {
            None => None,
            Some(hex) => Some(ChainValue::from_hex(hex).ok_or_else(|| useless("no chain value"))?),
        };
        Ok(Self {
            chain,
            chain_from: ReadPos {
                seq: written.chain_seq,
                hint: written.chain_hint,
            },
            keys: Keys::from_vec(written.keys),
            state: Transcript::thaw(frozen, registered)?,
        })
    }
}
