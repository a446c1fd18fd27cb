//! Categories of dangerous commands: those that are forbidden and those that need approval.

use serde::{Deserialize, Serialize};

macro_rules! catalogue {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $key:literal, $sentence:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $(#[serde(rename = $key)] $variant,)+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The stable name under which approvals are stored.
            #[must_use]
            pub fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)+ }
            }

            /// For people.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }

            #[must_use]
            pub fn from_key(key: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.key() == key)
            }
        }
    };
}

catalogue! {
    Hardline {
        WipesSystem = "wipes_system", "It would delete the whole system or one of its main folders.";
        WipesHome = "wipes_home", "It would delete a whole home folder.";
        WipesGateway = "wipes_gateway", "It would delete the gateway's own data.";
        WritesDevice = "writes_device", "It would overwrite a disk or another device.";
        Formats = "formats", "It would format a disk.";
        ForkBomb = "fork_bomb", "It would start copies of itself without end.";
        KillsEverything = "kills_everything", "It would end every process, or the first one.";
        Power = "power", "It would shut down, restart or suspend the machine.";
        StopsGateway = "stops_gateway", "It would stop or restart the gateway that runs it.";
        SudoPassword = "sudo_password", "It would feed a password to sudo, and none is configured.";
        TooLarge = "too_large", "It is too long or too deeply nested to be checked.";
    }
}

catalogue! {
    Category {
        RecursiveDelete = "recursive_delete", "Deletes folders with everything in them.";
        MassDelete = "mass_delete", "Deletes every file that a search or a list names.";
        WorldWritable = "world_writable", "Lets every user of the machine write, or gives a program its owner's rights.";
        RecursiveOwner = "recursive_owner", "Gives whole folders to the administrator.";
        Sql = "sql_destructive", "Drops or empties tables or databases.";
        SystemFiles = "system_files", "Changes files of the system.";
        Credentials = "credentials", "Changes SSH, shell start-up or credential files.";
        ProjectSecrets = "project_secrets", "Changes the settings or secrets of a project.";
        OwnConfig = "own_config", "Changes the gateway's own settings or data.";
        Services = "services", "Stops or restarts services.";
        KillSweep = "kill_sweep", "Ends processes by name, or ones that are not known beforehand.";
        Containers = "containers", "Stops or removes containers, images, volumes or cluster resources.";
        RemoteCode = "remote_code", "Runs code that comes from another machine.";
        DecodedCode = "decoded_code", "Runs encoded code, which cannot be read.";
        InlineCode = "inline_code", "Runs a program given on the command line, which is not checked.";
        Git = "git_destructive", "Discards work in Git, or rewrites shared history.";
        SudoFlags = "sudo_flags", "Asks for an administrator's shell or password.";
        MadeRunnable = "made_runnable", "Makes a file executable and runs it.";
        Disk = "disk", "Changes partitions, volumes or disk images.";
        SystemChange = "system_change", "Changes accounts, scheduled jobs, the firewall or the kernel.";
        RemoteShell = "remote_shell", "Connects a shell or a raw stream to another machine.";
        HiddenText = "hidden_text", "Contains characters that hide what it does from the reader.";
        Outside = "outside_sandbox", "Runs outside of the sandbox, with all the rights of the gateway.";
        Obscured = "obscured", "The commands that it runs are only known at run time.";
        Unreadable = "unreadable", "The command could not be parsed.";
    }
}

impl Category {
    /// Whether an approval can be stored. Not for categories that could hide any command.
    #[must_use]
    pub fn can_be_remembered(self) -> bool {
        !matches!(self, Self::HiddenText | Self::Obscured | Self::Unreadable | Self::Outside)
    }
}
