//! One column with kube-rs; see `tests/clients/scripts.py` for what it prints.

use std::borrow::Cow;
use std::env;
use std::error::Error;
use std::io::Write;

use futures::{AsyncBufReadExt, SinkExt, TryStreamExt};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    Api, ApiResource, AttachParams, AttachedProcess, DynamicObject, Execute, ListParams,
    LogParams, ObjectMeta, Patch, PatchParams, PostParams, TerminalSize, WatchEvent, WatchParams,
};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Done = Result<(), Box<dyn Error>>;

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Machine {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Value,
}

impl Resource for Machine {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Machine".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "compute.ironcore.dev".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "machines".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Execute for Machine {}

#[tokio::main]
async fn main() -> Done {
    let words: Vec<String> = env::args().skip(1).collect();
    let (column, machine, mark) = (words[0].as_str(), words[1].as_str(), words[2].as_str());
    let client = Client::try_default().await?;
    let namespace = env::var("NAMESPACE")?;
    let machines: Api<Machine> = Api::namespaced(client.clone(), &namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let kind = ApiResource::erase::<Machine>(&());
    let whole: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
    match column {
        "get" => get(&client, &machines, &pods).await,
        "watch" => watch(&machines, machine, mark).await,
        "apply" => apply(&whole, &format!("{machine}-applied")).await,
        "server-side-apply" => server_side_apply(&machines, &format!("{machine}-served")).await,
        "can-i" => can_i(&client, &namespace).await,
        "logs" => logs(&pods, machine, mark).await,
        "resize" => resize(&pods, machine, mark).await,
        _ => {
            let (what, way) = column.split_once('-').unwrap_or(("talk", column));
            let process = open(&machines, &pods, way, machine).await?;
            match what {
                "talk" => talk(process, mark).await,
                "end" => end_of_input(process, mark).await,
                _ => exit_status(process).await,
            }
        }
    }
}

async fn get(client: &Client, machines: &Api<Machine>, pods: &Api<Pod>) -> Done {
    println!("version {}", client.apiserver_version().await?.git_version);
    println!("groups {}", client.list_api_groups().await?.groups.len());
    for each in machines.list(&ListParams::default()).await? {
        let state = each.status["state"].as_str().unwrap_or_default();
        println!("machine {} {state}", each.metadata.name.unwrap_or_default());
    }
    for each in pods.list(&ListParams::default()).await? {
        let phase = each.status.and_then(|status| status.phase).unwrap_or_default();
        println!("pod {} {phase}", each.metadata.name.unwrap_or_default());
    }
    Ok(())
}

async fn watch(machines: &Api<Machine>, machine: &str, mark: &str) -> Done {
    let params = WatchParams::default().fields(&format!("metadata.name={machine}"));
    let mut events = Box::pin(machines.watch(&params, "0").await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(_) => println!("watching"),
            WatchEvent::Modified(each) => {
                let labels = each.metadata.labels.unwrap_or_default();
                let label = labels.get("tried").cloned().unwrap_or_default();
                println!("MODIFIED {label}");
                if label == mark {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
    Err("the watch ended".into())
}

fn desired(name: &str, label: &str) -> Value {
    json!({
        "apiVersion": "compute.ironcore.dev/v1alpha1",
        "kind": "Machine",
        "metadata": {"name": name, "labels": {"a": label}},
        "spec": {"machineClassRef": {"name": "pty"}},
    })
}

async fn apply(machines: &Api<DynamicObject>, name: &str) -> Done {
    let created: DynamicObject = serde_json::from_value(desired(name, "1"))?;
    machines.create(&PostParams::default(), &created).await?;
    let changed = Patch::Merge(desired(name, "2"));
    machines.patch(name, &PatchParams::default(), &changed).await?;
    Ok(())
}

async fn server_side_apply(machines: &Api<Machine>, name: &str) -> Done {
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    machines.patch(name, &one, &Patch::Apply(desired(name, "1"))).await?;
    match machines.patch(name, &two, &Patch::Apply(desired(name, "2"))).await {
        Err(kube::Error::Api(status)) => println!("conflict {}", status.code),
        other => println!("no conflict: {other:?}"),
    }
    machines.patch(name, &two.force(), &Patch::Apply(desired(name, "2"))).await?;
    Ok(())
}

async fn can_i(client: &Client, namespace: &str) -> Done {
    let attributes = ResourceAttributes {
        namespace: Some(namespace.into()),
        verb: Some("create".into()),
        group: Some("compute.ironcore.dev".into()),
        resource: Some("machines".into()),
        subresource: Some("exec".into()),
        ..Default::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..Default::default()
        },
        ..Default::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    println!("{}", answer.status.is_some_and(|status| status.allowed));
    Ok(())
}

async fn logs(pods: &Api<Pod>, machine: &str, mark: &str) -> Done {
    let params = LogParams { follow: true, ..Default::default() };
    let mut lines = Box::pin(pods.log_stream(machine, &params).await?.lines());
    while let Some(line) = lines.try_next().await? {
        println!("{line}");
        if line.contains(&format!("{mark}42z")) {
            return Ok(());
        }
    }
    Err("the log ended".into())
}

// Consoles.

async fn open(
    machines: &Api<Machine>,
    pods: &Api<Pod>,
    way: &str,
    machine: &str,
) -> Result<AttachedProcess, kube::Error> {
    let terminal = AttachParams::interactive_tty();
    match way {
        "attach" => pods.attach(machine, &terminal.container("console")).await,
        "exec" => pods.exec(machine, ["console"], &terminal.container("console")).await,
        _ => machines.exec(machine, ["console"], &terminal).await,
    }
}

/// Type, then print the output until a text was in it; an empty text means the end.
async fn ask(process: &mut AttachedProcess, line: &str, text: &str, end: bool) -> Done {
    let mut stdin = process.stdin().ok_or("no input")?;
    let mut stdout = process.stdout().ok_or("no output")?;
    stdin.write_all(line.as_bytes()).await?;
    if end {
        stdin.shutdown().await?;
    }
    let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let size = stdout.read(&mut piece).await?;
        std::io::stdout().write_all(&piece[..size])?;
        seen.extend_from_slice(&piece[..size]);
        if size == 0 && text.is_empty() {
            return Ok(());
        } else if size == 0 {
            return Err(format!("the console ended without {text}").into());
        } else if !text.is_empty() && String::from_utf8_lossy(&seen).contains(text) {
            return Ok(());
        }
    }
}

fn question(mark: &str) -> String {
    format!("echo {mark}$((6*7))z\n")
}

async fn talk(mut process: AttachedProcess, mark: &str) -> Done {
    ask(&mut process, &question(mark), &format!("{mark}42z"), false).await
}

async fn end_of_input(mut process: AttachedProcess, mark: &str) -> Done {
    let status = process.take_status().ok_or("no status")?;
    ask(&mut process, &question(mark), "", true).await?;
    println!("\nstatus {}", status.await.and_then(|each| each.status).unwrap_or_default());
    Ok(())
}

async fn resize(pods: &Api<Pod>, machine: &str, mark: &str) -> Done {
    let params = AttachParams::interactive_tty().container("console");
    let mut process = pods.attach(machine, &params).await?;
    let mut sizes = process.terminal_size().ok_or("no sizes")?;
    sizes.send(TerminalSize { width: 101, height: 31 }).await?;
    let wait = "until [ \"$(stty size)\" = '31 101' ]; do sleep 0.1; done; ";
    ask(&mut process, &(wait.to_owned() + &question(mark)), &format!("{mark}42z"), false).await
}

async fn exit_status(mut process: AttachedProcess) -> Done {
    let status = process.take_status().ok_or("no status")?;
    ask(&mut process, "exit 7\n", "", false).await?;
    let causes = status.await.and_then(|each| each.details).and_then(|each| each.causes);
    for cause in causes.unwrap_or_default() {
        if cause.reason.as_deref() == Some("ExitCode") {
            println!("\nexit {}", cause.message.unwrap_or_default());
        }
    }
    Ok(())
}
