//! The strict model server as a program, for tests that kill what talks to it.

use std::{error::Error, net::SocketAddr, path::PathBuf};

use clap::Parser;
use threadline_strict_model::{Reply, StrictModel};

/// Serve a strict model, in three dialects, that answers from a script
#[derive(Parser)]
#[command(name = "strict-model", version)]
struct Arguments {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// JSON file with a reply or a list of them
    #[arg(long)]
    script: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let script = match &arguments.script {
        None => Vec::new(),
        Some(path) => {
            let json = tokio::fs::read_to_string(path)
                .await
                .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            Reply::from_json(&json).map_err(|e| format!("{}: {e}", path.display()))?
        }
    };
    let model = StrictModel::listen(arguments.listen, script)
        .await
        .map_err(|e| format!("cannot listen on {}: {e}", arguments.listen))?;
    // The first line of the output is all that a parent process has to read.
    println!("{}", model.base_url());
    tokio::signal::ctrl_c().await?;
    model.stop().await;
    Ok(())
}
