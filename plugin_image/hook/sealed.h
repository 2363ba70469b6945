/* Run programs from memory that cannot be written: /proc/PID/exe then leads to no host file. */
#ifndef DIVVY_HOOK_SEALED_H
#define DIVVY_HOOK_SEALED_H

/* Return a sealed copy of a program, to be run by execveat; -1 with errno. */
int sealed_copy(int program);

/* Start this program again from a sealed copy of itself, with the same words and no
 * environment. 0 if it runs from one already, else -1 with errno. */
int sealed_restart(char **words);

#endif
