//! The help of the commands: their sections, and examples of each.

use std::fmt::Write;

use clap::Command;
use clap::builder::{StyledStr, Styles};

/// The roles that serve until they are stopped; all other commands end.
const SERVER_ROLES: [&str; 4] = ["standalone", "node", "controller", "operator"];

/// The commands that run in pods of the operator, and are not part of the kubectl plugin.
const IN_PODS: [&str; 3] = ["copy", "send", "unpack"];

/// The examples of a command: what each does, and the words behind the name of the program.
type Examples = (&'static str, &'static [(&'static str, &'static str)]);

const EXAMPLES: [Examples; 25] = [
    (
        "status",
        &[
            ("Show the pools of all nodes and all PvcAutoscalers", "status"),
            ("Show more columns, again after each change", "status --output wide --watch"),
            ("Print names for a script", "status --namespace shop --output name"),
        ],
    ),
    (
        "explain",
        &[
            ("Explain why a PVC is Pending", "explain pvc/db --namespace shop"),
            ("Explain each PVC of a StatefulSet", "explain sts/db"),
            ("Explain what is wrong with a node or a pool", "explain node/n1"),
            ("Print the state for a script", "explain db --output json"),
        ],
    ),
    (
        "plan",
        &[
            ("List the PvcAutoscalers of all namespaces", "plan --all-namespaces"),
            ("Show everything about the PvcAutoscaler of a StatefulSet", "plan sts/db"),
        ],
    ),
    (
        "doctor",
        &[
            ("Check this host, or as a kubectl plugin the cluster", "doctor"),
            ("Check the whole cluster", "doctor --cluster"),
            ("Check one node of the cluster", "doctor node/n1"),
        ],
    ),
    (
        "report",
        &[
            ("Write a report to a file", "report --output-file report.yaml"),
            ("Print a report with longer logs", "report --tail 1000"),
        ],
    ),
    (
        "expand",
        &[
            ("Expand a PVC, and wait until its pod sees the new size", "expand pvc/db 20Gi --wait"),
            ("Preview the expansion of all PVCs of a StatefulSet", "expand sts/db 20Gi"),
            ("Expand them", "expand sts/db 20Gi --yes --wait --timeout 10m"),
        ],
    ),
    (
        "shrink",
        &[
            ("Preview what would happen to each PVC", "shrink sts/db 4Gi"),
            (
                "Shrink them, and wait at most one hour",
                "shrink sts/db 4Gi --yes --wait --timeout 1h",
            ),
        ],
    ),
    (
        "migrate",
        &[
            ("Preview a migration to another StorageClass", "migrate sts/db --storage-class fast"),
            ("Migrate the PVCs", "migrate sts/db --storage-class fast --yes"),
        ],
    ),
    (
        "rollback",
        &[
            ("Preview the rollback of the pod with this PVC", "rollback pvc/data-db-0"),
            ("Roll back all pods of a StatefulSet", "rollback sts/db --yes --wait"),
        ],
    ),
    (
        "abort",
        &[
            ("Abort the PVC swap of one pod", "abort pvc/data-db-0 --yes"),
            ("Abort all PVC swaps of a StatefulSet", "abort sts/db --yes"),
        ],
    ),
    (
        "recover",
        &[
            (
                "Print what would be created for all orphaned volumes",
                "recover --all --namespace shop --dry-run",
            ),
            (
                "Create a PVC for one volume",
                "recover r3j7nlli-sedc5vnwdfpktymcxldjdvbalx --namespace shop --claim db",
            ),
        ],
    ),
    (
        "version",
        &[
            ("Show the versions of this program and of the nodes", "version"),
            ("Show the version of this program only", "version --client"),
        ],
    ),
    ("crds", &[("Print the CRDs as YAML", "crds"), ("Apply the CRDs", "crds --apply")]),
    ("check-config", &[("Validate a settings file", "check-config /etc/pliant/pliant.toml")]),
    (
        "self-test",
        &[
            ("Test all file systems and raw block volumes", "self-test"),
            (
                "Test one file system on a small disk",
                "self-test --fstype ext4 --size 64Mi --expand-to 96Mi",
            ),
        ],
    ),
    (
        "udev-rules",
        &[("Install the rules on a host", "udev-rules > /etc/udev/rules.d/12-pliant.rules")],
    ),
    (
        "completion",
        &[(
            "Load the completion into the current shell",
            "completion bash > ~/.pliant && . ~/.pliant",
        )],
    ),
    ("man", &[("Write the pages to a directory", "man /usr/local/share/man/man1")]),
    (
        "copy",
        &[
            ("Copy a directory", "copy /source /target"),
            (
                "Copy a raw block volume from another node",
                "copy --device --from 10.0.0.7:9815 --cert-dir /keys /dev/xvda",
            ),
        ],
    ),
    ("send", &[("Send a directory", "send /source --listen 10.0.0.7 --cert-dir /keys")]),
    (
        "unpack",
        &[(
            "Fetch an archive, verify its checksum and unpack it",
            "unpack /target --url https://files.example/data.tar.zst --sha256 $SUM",
        )],
    ),
    (
        "standalone",
        &[
            ("Serve an existing volume group", "standalone --node-id n1 --pool fast=vg0"),
            ("Serve with a settings file", "standalone --config /etc/pliant/pliant.toml"),
        ],
    ),
    ("node", &[("Run the node plugin of node n1", "node --node-id n1")]),
    ("controller", &[("Run the controller plugin", "controller --endpoint unix:///csi/csi.sock")]),
    (
        "operator",
        &[(
            "Run the operator with one image for populators",
            "operator --populator-image registry.example/pliant:0.1.0",
        )],
    ),
];

/// The examples of a command: what each does, and the words behind the name of the program.
pub fn examples(command: &str) -> &'static [(&'static str, &'static str)] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| examples)
}

fn heading(text: &str) -> String {
    let style = Styles::styled();
    let style = style.get_header();
    format!("{style}{text}:{style:#}\n")
}

fn in_words(command: &str, program: &str) -> String {
    let mut text = heading("Examples");
    for (what, words) in examples(command) {
        let _ = writeln!(text, "  # {what}\n  {program} {words}");
    }
    text
}

/// A line for each of these commands.
fn listed<'a>(commands: impl Iterator<Item = &'a Command>) -> String {
    let style = Styles::styled();
    let style = style.get_literal();
    let mut text = String::new();
    for command in commands {
        let name = format!("{:<12}", command.get_name());
        let about = command.get_about().map(StyledStr::to_string).unwrap_or_default();
        let aliases: Vec<&str> = command.get_visible_aliases().collect();
        let aliases = if aliases.is_empty() {
            String::new()
        } else {
            format!(" [alias: {}]", aliases.join(", "))
        };
        let _ = writeln!(text, "  {style}{name}{style:#}  {about}{aliases}");
    }
    text
}

/// Adds examples, and a section for the server roles, to the help; `program` is the name by which the caller
/// runs this program.
pub fn with_help(mut cli: Command, program: &str) -> Command {
    let names: Vec<String> = cli.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let is_plugin = program.contains(' ');
    for name in names {
        let is_hidden = is_plugin && IN_PODS.contains(&name.as_str());
        let examples = in_words(&name, program);
        cli = cli.mut_subcommand(name, |one| one.hide(is_hidden).after_help(examples));
    }
    let is_role = |one: &&Command| SERVER_ROLES.contains(&one.get_name());
    let shown = || cli.get_subcommands().filter(|one| !one.is_hide_set());
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}\n{}{}\n{}{{options}}{{after-help}}",
        heading("Commands"),
        listed(shown().filter(|one| !is_role(one))),
        heading("Server roles"),
        listed(shown().filter(is_role)),
        heading("Options"),
    );
    let after = format!("Run `{program} COMMAND --help` for the flags and examples of a command.");
    cli.help_template(template).after_help(after)
}
