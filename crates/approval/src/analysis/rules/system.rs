//! Rules for processes, services, containers, power, accounts and the gateway.

use alloc::string::String;

use super::{has, operands};
use crate::analysis::text::has_hole;
use crate::analysis::walk::{Walk, WalkResult};
use crate::{Category, Hardline};

impl Walk<'_> {
    pub(super) fn rules_system(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        let asks_help = args.iter().any(|arg| matches!(arg.as_str(), "--help" | "--version"));
        if asks_help {
            return Ok(());
        }
        match name {
            "shutdown" if !has(args, 'c', "") => Err(Hardline::Power),
            "reboot" | "halt" | "poweroff" | "pm-suspend" | "pm-hibernate" => Err(Hardline::Power),
            "init" | "telinit"
                if args
                    .first()
                    .is_some_and(|level| matches!(level.as_str(), "0" | "1" | "6" | "s" | "S")) =>
            {
                Err(Hardline::Power)
            }
            "kexec" if has(args, 'e', "exec") => Err(Hardline::Power),
            "dbus-send" | "busctl" | "gdbus"
                if args.iter().any(|arg| arg.contains("PowerOff") || arg.contains("Reboot")) =>
            {
                Err(Hardline::Power)
            }
            "systemctl" | "loginctl" | "service" | "rc-service" | "initctl" | "launchctl"
            | "supervisorctl" | "sv" | "s6-svc" | "brew" | "pm2" | "invoke-rc.d" => self.services(name, args),
            "kill" => self.kill(args),
            "pkill" | "killall" | "skill" | "killall5" | "fuser" => self.sweeps(name, args),
            "petasos" => self.gateway(args),
            "docker" | "podman" | "nerdctl" | "docker-compose" | "podman-compose" | "kubectl" | "helm"
            | "oc" => self.containers(name, args),
            _ => {
                if changes_system(name, args) {
                    self.report(Category::SystemChange);
                }
                Ok(())
            }
        }
    }

    fn gateway(&mut self, args: &[String]) -> WalkResult<()> {
        const ENDS: [&str; 6] = ["stop", "restart", "drain", "uninstall", "kill", "shutdown"];
        let words = operands(args);
        let ends = words.iter().any(|word| ENDS.contains(word));
        if ends || args.iter().any(|arg| arg == "--replace") {
            return self.stops_gateway();
        }
        if words.first() == Some(&"config")
            && words.get(1).is_some_and(|verb| matches!(*verb, "set" | "unset" | "edit"))
        {
            self.report(Category::OwnConfig);
        }
        Ok(())
    }

    fn services(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        const POWER: [&str; 13] = [
            "poweroff",
            "reboot",
            "halt",
            "kexec",
            "suspend",
            "hibernate",
            "hybrid-sleep",
            "suspend-then-hibernate",
            "emergency",
            "rescue",
            "isolate",
            "soft-reboot",
            "exit",
        ];
        const ENDS: [&str; 20] = [
            "stop",
            "restart",
            "try-restart",
            "reload-or-restart",
            "kill",
            "disable",
            "mask",
            "condrestart",
            "daemon-reexec",
            "force-reload",
            "unload",
            "bootout",
            "remove",
            "terminate-session",
            "terminate-user",
            "kill-session",
            "kill-user",
            "delete",
            "down",
            "revert",
        ];
        let words = operands(args);
        let targets_power = words.iter().any(|word| {
            ["poweroff.target", "reboot.target", "halt.target", "shutdown.target"].contains(word)
        });
        if matches!(name, "systemctl" | "loginctl")
            && (words.first().is_some_and(|verb| POWER.contains(verb)) || targets_power)
        {
            return Err(Hardline::Power);
        }
        if !words.iter().any(|word| ENDS.contains(word))
            || (name == "brew" && words.first() != Some(&"services"))
        {
            return Ok(());
        }
        if self.names_gateway {
            return self.stops_gateway();
        }
        self.report(Category::Services);
        Ok(())
    }

    fn kill(&mut self, args: &[String]) -> WalkResult<()> {
        if args.first().is_some_and(|arg| matches!(arg.as_str(), "-l" | "-L" | "--list" | "--table")) {
            return Ok(());
        }
        let mut signal = None;
        let mut at = 0;
        // a leading dash argument is a signal, a later one a process group
        if let Some(first) = args.first()
            && first.starts_with('-')
            && first != "--"
        {
            signal = Some(first.trim_start_matches('-'));
            at = if matches!(first.as_str(), "-s" | "-n" | "--signal") { 2 } else { 1 };
            if at == 2 {
                signal = args.get(1).map(String::as_str);
            }
        }
        if matches!(signal, Some("0")) {
            return Ok(());
        }
        let targets = args.get(at..).unwrap_or_default().iter().filter(|arg| *arg != "--");
        let mut any = false;
        for target in targets {
            any = true;
            let number = target.trim_start_matches('-');
            if matches!(target.as_str(), "-1" | "1" | "-0" | "0") {
                return Err(Hardline::KillsEverything);
            }
            if number.parse().is_ok_and(|pid: u32| self.context.gateway_pids.contains(&pid)) {
                return self.stops_gateway();
            }
            if has_hole(target) {
                if self.names_gateway {
                    return self.stops_gateway();
                }
                self.report(Category::KillSweep);
            }
        }
        if !any && signal == Some("1") {
            return Err(Hardline::KillsEverything);
        }
        Ok(())
    }

    fn sweeps(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        if name == "killall5" {
            return Err(Hardline::KillsEverything);
        }
        if name == "fuser" && !has(args, 'k', "kill") || args.iter().any(|arg| arg == "-0") {
            return Ok(());
        }
        if self.names_gateway {
            return self.stops_gateway();
        }
        let patterns = operands(args);
        let every_process = patterns.iter().any(|pattern| matches!(*pattern, "." | ".*" | "" | "*" | "^"));
        if every_process && name == "pkill" {
            return Err(Hardline::KillsEverything);
        }
        // a pattern that matches the gateway's name stops the gateway
        let fits = name == "pkill"
            && patterns.iter().any(|pattern| pattern.len() > 1 && "petasos".contains(pattern));
        if fits {
            return self.stops_gateway();
        }
        self.report(Category::KillSweep);
        Ok(())
    }

    fn containers(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        const ENDS: [&str; 16] = [
            "stop",
            "kill",
            "rm",
            "rmi",
            "restart",
            "down",
            "prune",
            "remove",
            "delete",
            "drain",
            "uninstall",
            "pause",
            "scale",
            "cordon",
            "leave",
            "replace",
        ];
        let words = operands(args);
        // the verb is one of the first words: `system prune`, `compose -f file down`, `volume rm`
        let reach = if matches!(name, "kubectl" | "helm" | "oc") { 2 } else { 4 };
        let ends = words.iter().take(reach).any(|word| ENDS.contains(word))
            && !matches!(words.first(), Some(&("run" | "exec" | "build" | "logs")));
        if !ends {
            return Ok(());
        }
        if self.names_gateway {
            return self.stops_gateway();
        }
        self.report(Category::Containers);
        Ok(())
    }
}

fn changes_system(name: &str, args: &[String]) -> bool {
    match name {
        "useradd" | "userdel" | "usermod" | "adduser" | "deluser" | "groupadd" | "groupdel" | "passwd"
        | "chpasswd" | "visudo" | "vipw" | "modprobe" | "rmmod" | "insmod" | "setenforce" | "chsh" => true,
        "crontab" => !has(args, 'l', ""),
        "iptables" | "ip6tables" => ["-F", "-X", "-P", "-A", "-D", "-I", "--flush"]
            .iter()
            .any(|flag| args.iter().any(|arg| arg == flag)),
        "nft" => args.iter().any(|arg| matches!(arg.as_str(), "flush" | "delete" | "add")),
        "ufw" | "firewall-cmd" => {
            args.iter().any(|arg| matches!(arg.as_str(), "disable" | "reset" | "allow" | "deny" | "delete"))
        }
        "sysctl" => has(args, 'w', "write") || args.iter().any(|arg| arg.contains('=')),
        "mount" | "umount" => !args.is_empty() && !has(args, 'l', ""),
        _ => false,
    }
}
