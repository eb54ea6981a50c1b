//! The binary as a person types it.

#![allow(clippy::disallowed_methods)] // No room of the driver: it starts the binary itself.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use clap::{CommandFactory, Parser};
use nix::unistd::geteuid;
use pliant::cli::Cli;
use serde_json::json;

fn pliant(args: &[&str]) -> Command {
    let mut command = Command::new(cargo_bin("pliant"));
    let ours = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("PLIANT_"));
    for name in ours {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// Exit code, standard output, standard error.
fn said(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_version_is_that_of_the_crate() {
    let version = format!("pliant {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(said(&mut pliant(&["--version"])), (Some(0), version, String::new()));
}

#[test]
fn each_role_has_help() {
    let (code, help, _) = said(&mut pliant(&["--help"]));
    assert_eq!(code, Some(0));
    for role in [
        "standalone",
        "check-config",
        "doctor",
        "self-test",
        "copy",
        "unpack",
        "crds",
        "status",
        "explain",
        "expand",
        "shrink",
        "migrate",
        "rollback",
        "plan",
        "recover",
        "report",
        "version",
        "completion",
        "man",
    ] {
        assert!(help.contains(&format!("  {role} ")), "{help}");
        let (code, help, _) = said(&mut pliant(&[role, "--help"]));
        assert_eq!(code, Some(0));
        assert!(help.contains(&format!("Usage: pliant {role}")), "{help}");
    }
}

/// A directory in which the program lies under the name that kubectl looks for.
fn plugin() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("kubectl-pliant");
    std::os::unix::fs::symlink(cargo_bin("pliant"), &link).unwrap();
    (dir, link)
}

#[test]
fn as_a_plugin_of_kubectl_it_calls_itself_as_it_is_called() {
    let (_dir, link) = plugin();
    let (code, help, _) = said(Command::new(&link).args(["explain", "--help"]));
    assert_eq!(code, Some(0));
    assert!(help.contains("Usage: kubectl pliant explain [OPTIONS] <OBJECT>"), "{help}");
    let (_, version, _) = said(Command::new(&link).arg("--version"));
    assert_eq!(version, format!("kubectl pliant {}\n", env!("CARGO_PKG_VERSION")));
    let (code, _, errors) = said(Command::new(&link).args(["check-config", "/nonexistent/x"]));
    assert_eq!(code, Some(1));
    assert!(errors.starts_with("/nonexistent/x: "), "{errors}");
    let (_, _, errors) =
        said(Command::new(&link).args(["status"]).env("KUBECONFIG", "/nonexistent"));
    assert!(errors.starts_with("kubectl pliant: "), "{errors}");
}

#[test]
fn kubectl_is_told_what_may_follow() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("kubectl_complete-pliant");
    std::os::unix::fs::symlink(cargo_bin("pliant"), &link).unwrap();
    for (words, lines) in [
        (&["expl"][..], &["explain\tExplain why a PVC", ":4\n"][..]),
        (
            &["status", "--output", ""],
            &["table\tTable for people", "wide\t", "json\t", "yaml\t", "name\t", ":4\n"],
        ),
        (&["expand", "--na"], &["--namespace\tUse this namespace", ":4\n"]),
        (&["frobnicate", "x"], &[":0\n"]),
    ] {
        let (code, text, errors) = said(Command::new(&link).args(words));
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{words:?}");
        for line in lines {
            assert!(text.contains(line), "{words:?}: {line} is not in {text}");
        }
    }
}

/// The sections of a help: each heading with the lines below it.
fn sections(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in help.lines() {
        match found.last_mut() {
            _ if line.ends_with(':') && !line.starts_with(' ') => found.push((line, Vec::new())),
            Some((_, lines)) => lines.push(line),
            None => {}
        }
    }
    found
}

/// The first words of the lines of a section.
fn names<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let sections = sections(help);
    let (_, lines) = sections.iter().find(|(name, _)| *name == heading).unwrap();
    let words = lines.iter().filter_map(|line| line.split_whitespace().next());
    words.take_while(|word| *word != "Run").collect()
}

#[test]
fn roles_of_servers_have_a_section_of_their_own() {
    let (_, help, _) = said(&mut pliant(&["--help"]));
    assert_eq!(names(&help, "Server roles:"), ["standalone", "node", "controller", "operator"]);
    let commands = names(&help, "Commands:");
    for one in ["status", "expand", "self-test", "copy", "send", "unpack"] {
        assert!(commands.contains(&one), "{help}");
    }
    assert!(!commands.contains(&"node"), "{help}");
    assert!(help.contains("Expand a PVC, or all PVCs of a workload [alias: grow]"), "{help}");
    for line in help.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let (_dir, link) = plugin();
    let (_, help, _) = said(Command::new(&link).arg("--help"));
    let commands = names(&help, "Commands:");
    for one in ["copy", "send", "unpack"] {
        assert!(!commands.contains(&one), "{help}");
        let (code, _, _) = said(Command::new(&link).args([one, "--help"]));
        assert_eq!(code, Some(0), "it is hidden, and works");
    }
    assert!(!help.contains('\x1b'), "no colours without a terminal: {help}");
}

/// Each is typed as it stands.
#[test]
fn every_command_has_examples_that_can_be_typed() {
    let (_dir, kubectl_pliant) = plugin();
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let (_, help, _) = said(&mut pliant(&[name, "--help"]));
        let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{help}"));
        let lines: Vec<&str> = examples.lines().map(str::trim).collect();
        let is_comment = |line: &&&str| line.starts_with("# ");
        let typed: Vec<&&str> = lines.iter().filter(|line| !is_comment(line)).collect();
        let comments = lines.iter().filter(is_comment).count();
        assert!(comments > 0 && comments == typed.len(), "{name}: {examples}");
        for line in typed {
            assert!(line.starts_with(&format!("pliant {name}")), "{line}");
            let line = line.replace("$SUM", &"0".repeat(64));
            let words = line.split(['>', '|']).next().unwrap();
            let parsed = Cli::try_parse_from(words.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {}", parsed.err().unwrap());
        }
        let (_, help, _) = said(Command::new(&kubectl_pliant).args([name, "--help"]));
        assert!(help.contains(&format!("\n  kubectl pliant {name}")), "{help}");
    }
}

/// All that a help says of a command and of its flags.
fn texts(command: &clap::Command) -> Vec<(String, String)> {
    let name = command.get_name();
    let about = command.get_about().map(|about| (name.to_owned(), about.to_string()));
    let flags = command.get_arguments().filter_map(|arg| {
        let help = arg.get_long_help().or(arg.get_help())?;
        Some((format!("{name} {}", arg.get_id()), help.to_string()))
    });
    about.into_iter().chain(flags).collect()
}

/// Each begins with what it does or is, in the words of Kubernetes, CSI and LVM.
#[test]
fn help_is_written_in_standard_terms() {
    let own = [
        "room",
        "fill",
        "fills",
        "filled",
        "told",
        "tells",
        "anew",
        "agent",
        "somebody",
        "nobody",
        "kept",
        "keeps",
        "shall",
        "lies",
        "besides",
        "heal",
        "record",
        "records",
        "wish",
        "figures",
        "definitions",
        "compared",
        "machine",
        "round",
        "patience",
        "adopt",
        "group",
    ];
    for command in Cli::command().get_subcommands() {
        for (what, help) in texts(command) {
            let starts = help.chars().next().unwrap();
            assert!(starts.is_ascii_uppercase() || starts == '/', "{what}: {help}");
            let lower = help.to_lowercase().replace("volume group", "vg").replace("as-group", "");
            let words = lower.split(|c: char| !c.is_ascii_alphabetic());
            let found: Vec<&str> = words.filter(|word| own.contains(word)).collect();
            let found: Vec<&&str> = found
                .iter()
                .filter(|word| !(what.contains("as_groups") && **word == "group"))
                .collect();
            assert!(found.is_empty(), "{what}: {found:?} in {help}");
        }
    }
}

#[test]
fn the_older_word_for_expand_is_taken_too() {
    let (code, help, _) = said(&mut pliant(&["grow", "--help"]));
    assert_eq!(code, Some(0));
    assert!(help.contains("Usage: pliant expand"), "{help}");
}

#[test]
fn a_timeout_is_that_of_a_wait() {
    let (code, _, errors) = said(&mut pliant(&["expand", "db", "1Gi", "--timeout", "5m"]));
    assert_eq!(code, Some(2));
    assert!(errors.contains("--wait"), "{errors}");
}

#[test]
fn an_address_of_a_type_that_a_command_cannot_take_is_answered_with_those_that_it_can() {
    for (args, words) in [
        (
            &["explain", "deployment.batch/x"][..],
            "`deployment.batch` is not a type that this command takes: write pvc/NAME, pv/NAME",
        ),
        (&["expand", "node/n1", "1Gi"], "write pvc/NAME, sts/NAME, deploy/NAME or pvcas/NAME"),
        (&["expand", "pvc/", "1Gi"], "write pvc/NAME, sts/NAME, deploy/NAME or pvcas/NAME"),
        (&["plan", "pv/x"], "write pvcas/NAME, sts/NAME, deploy/NAME or pvc/NAME"),
        (&["doctor", "pvc/x"], "write node/NAME"),
    ] {
        let (code, _, errors) = said(&mut pliant(args));
        assert_eq!(code, Some(2), "{args:?}: {errors}");
        assert!(errors.contains(words), "{args:?}: {errors}");
    }
}

#[test]
fn shells_and_man_get_all_commands() {
    for (shell, word) in [("bash", "_pliant()"), ("zsh", "#compdef pliant"), ("fish", "-c pliant")]
    {
        let (code, text, _) = said(&mut pliant(&["completion", shell]));
        assert_eq!(code, Some(0));
        assert!(text.contains(word) && text.contains("explain"), "{shell}: {text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    assert_eq!(
        said(&mut pliant(&["man", pages.to_str().unwrap()])),
        (Some(0), String::new(), String::new())
    );
    let page = std::fs::read_to_string(pages.join("pliant-explain.1")).unwrap();
    assert!(page.contains("pvc/NAME"), "{page}");
    let main = std::fs::read_to_string(pages.join("pliant.1")).unwrap();
    assert!(main.contains("pliant\\-explain(1)"), "{main}");
}

#[test]
fn the_definitions_are_yaml_documents_that_kubectl_takes() {
    let (code, printed, errors) = said(&mut pliant(&["crds"]));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let documents: Vec<&str> = printed.split("---\n").skip(1).collect();
    let names = [
        "archivepopulators",
        "nodestorages",
        "pvcautoscalers",
        "pvcsourcepopulators",
        "storagepools",
        "volumerequests",
    ];
    for (document, name) in documents.iter().zip(names) {
        let read: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        assert_eq!(read["kind"], "CustomResourceDefinition", "{document}");
        assert_eq!(read["metadata"]["name"], format!("{name}.pliant.io"));
    }
    assert_eq!(documents.len(), names.len());
}

#[test]
fn check_config_prints_what_is_in_effect_and_takes_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pliant.yaml");
    std::fs::write(&file, "pools: [{name: fast, volume-groups: [vg0]}]\n").unwrap();
    let args = ["check-config", file.to_str().unwrap()];
    let (code, printed, errors) = said(pliant(&args).env("PLIANT_NODE_ID", "alpha"));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(printed.starts_with("node-id = \"alpha\"\n"), "{printed}");

    let again = dir.path().join("again.toml");
    std::fs::write(&again, &printed).unwrap();
    let args = ["check-config", again.to_str().unwrap()];
    assert_eq!(said(&mut pliant(&args)), (Some(0), printed, String::new()));
}

#[test]
fn check_config_tells_every_error_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("pliant.toml"), "node = \"a\"\nmax-volumes-per-node = \"x\"\n")
        .unwrap();
    let mut command = pliant(&["check-config", "pliant.toml"]);
    let expected = "pliant.toml:1: node: unknown key; did you mean `node-id`?\npliant.toml:2: \
                    max-volumes-per-node: expected a number, found the string `x`\n";
    let (code, out, errors) = said(command.current_dir(dir.path()));
    assert_eq!((code, out.as_str(), errors.as_str()), (Some(1), "", expected));
}

#[test]
fn a_missing_file_is_told() {
    let missing =
        "/nonexistent/pliant.toml: cannot be read: No such file or directory (os error 2)\n";
    for role in [&["check-config"][..], &["standalone", "--config"]] {
        let mut args = role.to_vec();
        args.push("/nonexistent/pliant.toml");
        assert_eq!(said(&mut pliant(&args)), (Some(1), String::new(), missing.to_owned()));
    }
}

#[test]
fn a_bad_flag_is_told_by_its_name() {
    let (code, _, errors) = said(&mut pliant(&["standalone", "--filesystem-expansion=agent"]));
    assert_eq!(code, Some(2));
    let expected = "error: invalid value 'agent' for '--filesystem-expansion <PLUGIN>': `agent` is not a \
                    component that expands file systems: use controller or node\n";
    assert!(errors.starts_with(expected), "{errors}");
}

#[test]
fn a_bad_value_of_the_environment_is_told_by_its_variable() {
    let mut command = pliant(&["standalone"]);
    let (code, _, errors) = said(command.env("PLIANT_FILESYSTEM_EXPANSION", "agent"));
    assert_eq!(code, Some(2));
    let expected = "error: invalid value 'agent' for 'PLIANT_FILESYSTEM_EXPANSION, the variable of \
                    --filesystem-expansion <PLUGIN>': `agent` is not a component that expands file \
                    systems: use controller or node\n";
    assert!(errors.starts_with(expected), "{errors}");
    // The flag wins over the variable, so it is the flag's value that is wrong.
    let mut command = pliant(&["standalone", "--filesystem-expansion", "kubelet"]);
    let (_, _, errors) = said(command.env("PLIANT_FILESYSTEM_EXPANSION", "agent"));
    assert!(
        errors.starts_with("error: invalid value 'kubelet' for '--filesystem-expansion"),
        "{errors}"
    );
}

#[test]
fn a_value_of_the_wrong_shape_is_answered_with_a_right_one() {
    for (args, words) in [
        (["standalone", "--metrics-address=9808"], "write 127.0.0.1:9808"),
        (["standalone", "--metrics-address=:9808"], "write 127.0.0.1:9808"),
        (
            ["standalone", "--max-volumes-per-node=many"],
            "`many` is not a count: write a whole number",
        ),
        (["self-test", "--fstype=zfs"], "use ext4, xfs, btrfs, ext3, ext2 or block"),
        (["self-test", "--size=0"], "the size must be above 0, such as 320Mi"),
        (["self-test", "--expand-to=0"], "the size must be above 0, such as 320Mi"),
    ] {
        let (code, _, errors) = said(&mut pliant(&args));
        assert_eq!(code, Some(2), "{args:?}: {errors}");
        assert!(errors.contains(words), "{args:?}: {errors}");
    }
}

#[test]
fn self_test_says_what_it_waits_for_and_what_it_can_make() {
    let (_, help, _) = said(pliant(&["self-test", "--help"]).env("COLUMNS", "200"));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("wait up to 10 s for a driver that is starting"), "{help}");
    assert!(
        help.contains("ext4, xfs, btrfs, ext3, ext2, or block for a raw block volume"),
        "{help}"
    );
}

#[test]
fn doctor_tells_programs_and_people_the_same() {
    let (_, json, _) = said(&mut pliant(&["doctor", "-o", "json"]));
    let findings: serde_json::Value = serde_json::from_str(&json).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (code, text, _) = said(pliant(&["doctor"]).env("TMPDIR", dir.path()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut bad = false;
    for finding in findings.as_array().unwrap() {
        bad |= finding["severity"] == "error";
        assert!(words.contains(finding["message"].as_str().unwrap()), "{text}");
        assert_eq!(finding["severity"] == "ok", finding["remediation"].is_null(), "{finding}");
    }
    assert_eq!(code, Some(i32::from(bad)));
    assert!(!text.contains('\x1b'), "no colours without a terminal: {text}");
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut child = pliant(&["doctor", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(child.wait().unwrap().code().is_some());
    assert_eq!(errors, "");
}

#[test]
fn logs_have_no_colours_without_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let state = format!("--state-dir={}", dir.path().display());
    let args = [
        "standalone",
        "--node-id=a",
        "--pool=fast=create:/dev/absent",
        "--endpoint=/dev/null/x",
        &state,
    ];
    let (_, _, log) = said(&mut pliant(&args));
    assert!(log.contains("absent") || log.contains("requires root"), "{log}");
    assert!(!log.contains('\x1b'), "{log}");
}

/// All that is below a directory.
fn below(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        all.push(path.display().to_string());
        if path.is_dir() {
            all.extend(below(&path));
        }
    }
    all.sort();
    all
}

/// The one before it still ends what it has begun.
#[test]
fn a_driver_changes_nothing_before_the_one_before_it_has_ended() {
    if !geteuid().is_root() {
        eprintln!("skipped: a driver needs root");
        return;
    }
    for role in ["standalone", "node"] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("state")).unwrap();
        fs::create_dir(at("rules")).unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "none", "users": [],
            "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
            "contexts": [{"name": "none", "context": {"cluster": "none", "user": ""}}],
        });
        fs::write(at("kubeconfig"), config.to_string()).unwrap();
        let lock = File::create(at("state/lock")).unwrap();
        lock.lock().unwrap();
        let before = below(dir.path());
        let mut command = pliant(&[role, "--node-id=a"]);
        command.arg(format!("--endpoint={}", at("csi.sock").display()));
        command.arg(format!("--state-dir={}", at("state").display()));
        match role {
            "standalone" => command.arg("--pool=fast=create:/dev/absent"),
            _ => command
                .arg("--no-registration")
                .arg(format!("--udev-rules-dir={}", at("rules").display()))
                .env("KUBECONFIG", at("kubeconfig")),
        };
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut seen = Vec::new();
        let mut log = log.inspect(|line| seen.push(line.clone()));
        let waits = log.any(|line| line.contains("waiting for another process of this driver"));
        let meanwhile = below(dir.path());
        lock.unlock().unwrap();
        let serves = log.any(|line| line.contains("serving"));
        let then = below(dir.path());
        child.kill().ok();
        child.wait().unwrap();
        drop(log);
        assert!(waits && serves, "{role}: {seen:#?}");
        assert_eq!(meanwhile, before, "{role}: {seen:#?}");
        let rules = at("rules/12-pliant.rules").display().to_string();
        assert_eq!(then.contains(&rules), role == "node", "{role}: {then:#?}");
    }
}

#[test]
fn without_a_kubeconfig_one_line_says_where_it_was_looked_for_and_what_to_set() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad");
    std::fs::write(&bad, "clusters: [\n  {\n").unwrap();
    let missing = "/nonexistent/config";
    for (path, words) in
        [(missing, missing), (bad.to_str().unwrap(), "failed to parse kubeconfig YAML")]
    {
        let (code, _, errors) = said(pliant(&["status"]).env("KUBECONFIG", path));
        assert_eq!(code, Some(1), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(
            errors.contains(words) && errors.contains("set KUBECONFIG to a kubeconfig"),
            "{errors}"
        );
        assert_eq!(
            errors.matches("No such file").count(),
            usize::from(path == missing),
            "{errors}"
        );
        assert!(!errors.contains('\\') && !errors.contains("in-cluster"), "{errors}");
    }
}
