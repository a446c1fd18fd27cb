//! Git and databases.

use alloc::string::String;
use alloc::vec::Vec;

use super::{has, operands};
use crate::Category;
use crate::analysis::state::Stream;
use crate::analysis::text::UNKNOWN;
use crate::analysis::walk::{Walk, WalkResult};

pub(super) const SQL_CLIENTS: [&str; 13] = [
    "psql",
    "mysql",
    "mariadb",
    "sqlite3",
    "sqlite",
    "sqlcmd",
    "duckdb",
    "clickhouse-client",
    "cockroach",
    "mycli",
    "pgcli",
    "usql",
    "mongosh",
];

impl Walk<'_> {
    pub(super) fn rules_project(&mut self, name: &str, args: &[String], input: &Stream) -> WalkResult<()> {
        match name {
            "git" => self.git(args)?,
            "dropdb" | "dropuser" => self.report(Category::Sql),
            "mysqladmin" if args.iter().any(|arg| arg == "drop") => self.report(Category::Sql),
            "redis-cli"
                if args.iter().any(|arg| {
                    arg.eq_ignore_ascii_case("flushall") || arg.eq_ignore_ascii_case("flushdb")
                }) =>
            {
                self.report(Category::Sql);
            }
            "make" | "gmake" => self.make(args, input)?,
            _ if SQL_CLIENTS.contains(&name) => {
                let given = match input {
                    Stream::Known(text) => text.as_str(),
                    Stream::Unknown | Stream::Decoded | Stream::Remote => "",
                };
                for text in args.iter().map(String::as_str).chain([given]) {
                    self.sql(text)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sql(&mut self, text: &str) -> WalkResult<()> {
        if is_destructive(text) {
            self.report(Category::Sql);
        }
        // the shell escape of a client
        let escapes = ["\\!", ".shell ", ".system ", "\\copy"];
        for line in text.lines() {
            let Some((escape, at)) =
                escapes.iter().find_map(|escape| line.find(escape).map(|at| (escape, at)))
            else {
                continue;
            };
            if *escape != "\\copy" {
                self.isolated(|walk| walk.code(&line[at + escape.len()..]))?;
            } else if line.contains("program") {
                self.report(Category::InlineCode);
            }
        }
        Ok(())
    }

    /// Rules passed with the command run like any other program.
    fn make(&mut self, args: &[String], input: &Stream) -> WalkResult<()> {
        let from_input =
            super::value(args, "-f", "--file").is_some_and(|file| file == "-" || file.starts_with("/dev/"));
        let inline = super::value(args, "", "--eval");
        if from_input || inline.is_some() {
            self.report(Category::InlineCode);
            let text = inline.map_or_else(|| input.clone().into_text(), String::from);
            for line in text.lines() {
                self.only_hardline(line.trim_start_matches(['\t', '@', '-', ' ']))?;
            }
        }
        Ok(())
    }

    fn git(&mut self, args: &[String]) -> WalkResult<()> {
        self.git_programs(args)?;
        let rest = super::wrap::after_options(args, &["-C", "-c", "--git-dir", "--work-tree", "--namespace"]);
        let Some((verb, args)) = rest.split_first() else { return Ok(()) };
        let words = operands(args);
        let first = words.first().copied().unwrap_or_default();
        let whole = |word: &&str| matches!(*word, "." | ":/" | "*" | ":" | "./") || word.starts_with(UNKNOWN);
        let destructive = match verb.as_str() {
            "reset" => has(args, '\0', "hard") || has(args, '\0', "merge"),
            "clean" => has(args, 'f', "force") && !has(args, 'n', "dry-run"),
            "push" => {
                let flags = ["--force", "--force-with-lease", "--mirror", "--delete", "--prune"];
                args.iter().any(|arg| flags.iter().any(|flag| arg.starts_with(flag)))
                    || has(args, 'f', "")
                    || has(args, 'd', "")
                    || words.iter().skip(1).any(|word| word.starts_with([':', '+']))
            }
            "branch" => has(args, 'D', "") || (has(args, 'd', "delete") && has(args, 'f', "force")),
            "checkout" => {
                has(args, 'f', "force")
                    || (args.iter().any(|arg| arg == "--") || words.len() == 1) && words.iter().any(whole)
            }
            "switch" => has(args, 'f', "force") || has(args, '\0', "discard-changes"),
            "restore" => words.iter().any(whole) && (has(args, 'W', "worktree") || !has(args, 'S', "staged")),
            "stash" => matches!(first, "drop" | "clear"),
            "reflog" => matches!(first, "expire" | "delete"),
            "gc" => args.iter().any(|arg| arg.starts_with("--prune=")),
            "filter-branch" | "filter-repo" => true,
            "update-ref" => has(args, 'd', ""),
            "worktree" => first == "remove" && has(args, 'f', "force"),
            "rm" => has(args, 'r', "") && has(args, 'f', "force"),
            _ => false,
        };
        if destructive {
            self.report(Category::Git);
        }
        Ok(())
    }

    /// Git runs configured programs, and some of its commands run their arguments.
    fn git_programs(&mut self, args: &[String]) -> WalkResult<()> {
        const KEYS: [&str; 7] = [
            "core.pager",
            "core.editor",
            "core.sshcommand",
            "core.fsmonitor",
            "sequence.editor",
            "diff.external",
            "credential.helper",
        ];
        for (at, arg) in args.iter().enumerate() {
            let (key, value) =
                arg.split_once('=').unwrap_or((arg.as_str(), args.get(at + 1).map_or("", String::as_str)));
            let key = key.to_ascii_lowercase();
            let code = match value.strip_prefix('!') {
                Some(code) if key.starts_with("alias.") || KEYS.contains(&key.as_str()) => code,
                _ if KEYS.contains(&key.as_str()) && key != "credential.helper" => value,
                _ if matches!(
                    arg.as_str(),
                    "--exec" | "-x" | "--tree-filter" | "--index-filter" | "--msg-filter"
                ) =>
                {
                    value
                }
                _ => continue,
            };
            self.isolated(|walk| walk.code(code))?;
        }
        let at = args.windows(2).position(|pair| {
            matches!([pair[0].as_str(), pair[1].as_str()], ["submodule", "foreach"] | ["bisect", "run"])
        });
        let Some(at) = at else { return Ok(()) };
        let runs = args[at + 2..].join(" ");
        self.isolated(|walk| walk.code(&runs)).map(drop)
    }
}

/// `DROP`, `TRUNCATE`, or `DELETE` without a condition.
fn is_destructive(sql: &str) -> bool {
    sql.split(';').any(|statement| {
        let words: Vec<String> = statement
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_uppercase)
            .collect();
        let follows = |first: &str, seconds: &[&str]| {
            words.windows(2).any(|pair| pair[0] == first && seconds.contains(&pair[1].as_str()))
        };
        let has = |word: &str| words.iter().any(|known| known == word);
        follows(
            "DROP",
            &[
                "TABLE",
                "DATABASE",
                "SCHEMA",
                "INDEX",
                "VIEW",
                "COLUMN",
                "USER",
                "ROLE",
                "OWNED",
                "TYPE",
                "FUNCTION",
                "MATERIALIZED",
            ],
        ) || words.first().is_some_and(|word| word == "TRUNCATE")
            || follows("TRUNCATE", &["TABLE"])
            || (follows("DELETE", &["FROM"]) && !has("WHERE"))
            || has("DROPDATABASE")
            || (has("DELETEMANY") && statement.contains("{}"))
    })
}
