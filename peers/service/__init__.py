"""`dupt-peer service`: an oracle that starts with the machine, with the options of the last `join`.

commands     install, uninstall, status
last_join    what `join` was asked for, kept in the state folder
manager      what a service manager is asked, whichever it is
systemd      a unit of the user's own
launchd      the same on a Mac
"""
