#ifndef DIVVY_POOLS_H
#define DIVVY_POOLS_H

/* After a synchronisation: pools may have given memory back. One load where there are none. */
void pools_synchronised(void);

#endif
