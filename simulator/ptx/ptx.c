extern int p;int p;
